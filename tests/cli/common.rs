//! Running the program, and making things for it to read.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_autocompress");

/// A compression of a few steps; `PARENT` is to be replaced.
pub const COMPRESSION: &str = r#"
parent = "PARENT"
space = "space.toml"
contract = "contract.toml"

[data]
kind = "tasks"

[rank]
sequences = 4
length = 64

[profile]
repeats = 1
starts = 1
held_out = 1
held_out_repeats = 1

[search]
draws = 2
alpha = 3.0
slack = "binding"

[search.training]
steps = 12
sequences = 4
length = 32
learning_rate = 1e-3
checkpoint_every = 2

[recover.training]
steps = 12
sequences = 4
length = 32
learning_rate = 1e-3
checkpoint_every = 2

[evaluate]
examples = 2
sequences = 2
length = 64

[measure]
repeats = 1
"#;

/// A small workload, and `limits`.
pub fn contract(limits: &str) -> String {
    let head = "device = \"cpu\"\nengine = \"builtin\"\nprecision = \"f32\"\nthreads = 1\n";
    let workload = "[workload]\nbatch = 1\ninput_tokens = 16\noutput_tokens = 4\nprefill_chunk = 16\n";
    format!("{head}{workload}[limits]\n{limits}\n")
}

/// How a process ended.
#[derive(Debug)]
pub struct Outcome {
    /// `None`: by a signal.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Outcome {
    #[track_caller]
    pub fn ok(self) -> Outcome {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    #[track_caller]
    pub fn json(self) -> Value {
        let outcome = self.ok();
        serde_json::from_str(&outcome.out).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
    }

    /// One sentence on standard error with all of `parts`, nothing on standard output.
    #[track_caller]
    pub fn refused(self, code: i32, parts: &[&str]) {
        self.failed(code, parts);
        assert_eq!(self.err.trim_end().lines().count(), 1, "{self:?}");
        assert!(self.err.starts_with("error: "), "{self:?}");
    }

    /// As [`Outcome::refused`], in more than one line: clap's errors add the usage, others a warning before.
    #[track_caller]
    pub fn failed(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        parts.iter().for_each(|part| assert!(self.err.contains(part), "lacks {part:?}: {self:?}"));
        for never in ["panic", "internal error", "backtrace", "RUST_"] {
            assert!(!self.err.contains(never), "{self:?}");
        }
        assert_eq!(self.out, "", "{self:?}");
    }
}

/// Waits for a child with piped or closed output; one that takes a minute hangs.
#[track_caller]
pub fn wait(mut child: Child) -> Outcome {
    fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut bytes).unwrap());
            String::from_utf8(bytes).unwrap()
        })
    }
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let started = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if started.elapsed() > Duration::from_secs(60) => {
                child.kill().unwrap();
                panic!("the program hangs: {}", err.join().unwrap());
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    Outcome { code: status.code(), out: out.join().unwrap(), err: err.join().unwrap() }
}

pub fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[track_caller]
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Outcome {
    wait(command(args).spawn().unwrap())
}

/// The program with `args`, where no file may grow beyond some 50 to 100 KB; the limit's signal is ignored, so that
/// write(2) itself fails part of the way, as on a full disk.
#[track_caller]
pub fn run_on_full_disk<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Outcome {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\"", PROGRAM]).args(args);
    wait(shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

pub fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/reference/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A folder that goes with the test.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of `name` inside, as an argument.
    pub fn at(&self, name: &str) -> String {
        self.path().join(name).into_os_string().into_string().unwrap()
    }

    /// Writes a file, and gives its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.at(name), content).unwrap();
        self.at(name)
    }

    /// A copy of a reference model.
    pub fn model(&self, name: &str) -> String {
        let to = self.at(name);
        fs::create_dir(&to).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(Path::new(&fixture("base")).join(file), Path::new(&to).join(file)).unwrap();
        }
        to
    }

    /// A tiny model's `config.json` of all four kinds of layers, and a recipe that trains it with `data`, a TOML table,
    /// for four steps with a checkpoint after each second one.
    pub fn recipe(&self, data: &str) -> String {
        let config = json!({
            "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "vocab_size": 256, "hidden_size": 32,
            "layers_block_type": ["mamba", "moe", "attention", "mlp"],
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
            "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 8, "conv_kernel": 4,
            "chunk_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
            "n_shared_experts": 1, "moe_shared_expert_intermediate_size": 32, "n_group": 1, "topk_group": 1,
            "norm_topk_prob": true, "routed_scaling_factor": 2.5, "intermediate_size": 48, "layer_norm_epsilon": 1e-5,
            "eos_token_id": 2, "tie_word_embeddings": false,
        });
        self.file("config.json", config.to_string());
        let model = "[model]\nconfig = \"config.json\"\nseed = 3\ndtype = \"f32\"\n";
        let train = "[train]\nsteps = 4\nsequences = 4\nlength = 64\nlearning_rate = 3e-3\ncheckpoint_every = 2\n";
        self.file("recipe.toml", format!("{model}\n[data]\n{data}\n\n{train}"))
    }

    /// The recipe with the built-in tasks, `from` in its text replaced by `to`.
    pub fn recipe_with(&self, from: &str, to: &str) -> String {
        let path = self.recipe("kind = \"tasks\"");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        self.file("recipe.toml", text.replacen(from, to, 1))
    }

    /// The recipe of a [`COMPRESSION`], and what it reads.
    pub fn compression(&self, parent: &str, space: &str, limits: &str) -> String {
        self.file("space.toml", space);
        self.file("contract.toml", contract(limits));
        self.file("recipe.toml", COMPRESSION.replace("PARENT", parent))
    }

    #[track_caller]
    pub fn pretrain(&self, recipe: &str, out: &str) -> Outcome {
        run(["--threads", "1", "pretrain", recipe, "--out", &self.at(out), "--quiet", "--json"])
    }

    /// Names in a folder inside, sorted.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path().join(folder)).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub fn text(&self, file: &str) -> String {
        String::from_utf8(self.read(file)).unwrap()
    }

    pub fn read(&self, file: &str) -> Vec<u8> {
        let path: PathBuf = self.path().join(file);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// All regular files below a folder, sorted.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Puts a pipe in the place of a file, and gives what was in it.
pub fn as_pipe(path: &Path) -> Vec<u8> {
    let content = fs::read(path).unwrap();
    fs::remove_file(path).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    content
}

/// Rewrites the header and the data of a model's `model.safetensors`.
pub fn edit_weights(model: &str, edit: impl FnOnce(&mut Map<String, Value>, &mut Vec<u8>)) {
    let path = Path::new(model).join("model.safetensors");
    let (mut header, mut data) = read_weights(&path);
    edit(&mut header, &mut data);
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).unwrap();
}

/// The header of a safetensors file without its metadata, and the data.
pub fn read_weights(path: &Path) -> (Map<String, Value>, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    header.remove("__metadata__");
    (header, bytes[8 + length..].to_vec())
}

/// A tokenizer.json of three words, the last with the id `last`.
pub fn tokenizer(last: u32) -> String {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": { "<unk>": 0, "small": 1, "big": last }, "unk_token": "<unk>" },
    })
    .to_string()
}
