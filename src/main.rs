fn main() -> std::process::ExitCode {
    autocompress::cli::main()
}
