//! What follows the options in a command's `--help`: what it writes, and an example.

macro_rules! help {
    ($($name:ident: $writes:literal, $example:literal;)*) => {
        $(pub const $name: &str = concat!("Writes: ", $writes, "\n\nExample:\n  autocompress ", $example);)*
    };
}

pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the work failed
  2  the input is at fault: the command line, or a file that it names
  3  all was done, but a measured model is over a limit of its contract";

help! {
    QUICKSTART:
        "OUT/parents, OUT/spaces, OUT/contracts, OUT/recipes (what the run reads) and the run directory OUT/run with \
         student/, recovered/, report.html and report.json. Exit code 3 where the student is over a limit.",
        "quickstart --out first";
    RUN:
        "the run directory: recipe.toml, inputs.json, stages/, and what each stage writes (see their --help). \
         Exit code 3 where the student is over a limit.",
        "run presets/recipes/quickstart.toml --out runs/half";
    RANK:
        "OUT/rank/importance.json",
        "rank presets/recipes/quickstart.toml --out runs/half";
    PROFILE:
        "OUT/cost: table.csv (one row per phase, hidden size and layer configuration), profile.json, runs.jsonl",
        "profile presets/recipes/quickstart.toml --out runs/half";
    SEARCH:
        "OUT/search: search.json, metrics.jsonl (one line per step), checkpoints/",
        "search presets/recipes/quickstart.toml --out runs/half";
    EXTRACT:
        "OUT/extract/extract.json and the model's folder OUT/student with its card README.md",
        "extract presets/recipes/quickstart.toml --out runs/half";
    RECOVER:
        "OUT/recover (recover.json, metrics.jsonl, checkpoints/) and the model's folder OUT/recovered with its card README.md",
        "recover presets/recipes/quickstart.toml --out runs/half";
    EVALUATE:
        "nothing; with --out, OUT/evaluate/evaluate.json",
        "evaluate presets/parents/tiny --data records.jsonl";
    MEASURE:
        "nothing; with --out, OUT/measure/measure.json. Exit code 3 where a model is over a limit.",
        "measure presets/parents/tiny runs/half/recovered --contract presets/contracts/half.toml";
    REPORT:
        "OUT/report.html, OUT/report.json, and README.md of both students again. Exit code 3 where the student is over a limit.",
        "report presets/recipes/quickstart.toml --out runs/half";
    VALIDATE:
        "nothing; the run directory OUT must have a complete profile",
        "validate presets/recipes/quickstart.toml --out runs/half --architectures 20";
    STUDY:
        "the run directory: what rank and profile write, study/SHARE/SEED/ARM/result.json, study.json, study.md, study.svg",
        "study presets/recipes/compare.toml --out runs/compare --shares 0.6,0.4 --seeds 3";
    BASELINE_MINITRON:
        "the run directory of `run`, with screen/screen.json and screen/I/ (losses of each candidate) in place of search/. \
         Exit code 3 where the student is over a limit.",
        "baseline minitron presets/recipes/quickstart.toml --out runs/uniform --like runs/half";
    INSPECT:
        "nothing",
        "inspect presets/parents/nano-30b.json";
    PLAN:
        "nothing",
        "plan presets/recipes/h100.toml --gpus 8 --gpu h100";
    DRY_RUN:
        "nothing",
        "dry-run presets/recipes/rtx-5070.toml";
    PROFILE_PLAN:
        "OUT: short models of random weights, a manifest, and run.sh, which serves and traces them",
        "profile plan --contract presets/contracts/rtx-5070.toml --out traces";
    PROFILE_INGEST:
        "DIR/table.csv",
        "profile ingest traces";
    PROFILE_ESTIMATE:
        "nothing; with --out, the table",
        "profile estimate --contract presets/contracts/rtx-5070.toml --table traces/table.csv --out estimate.csv";
    CONTRACT_CHECK:
        "nothing",
        "contract check presets/contracts/h100.toml";
    KERNELS_LIST:
        "nothing",
        "kernels list --device cuda";
    KERNELS_CHECK:
        "nothing",
        "kernels check rms_norm --device cuda";
    EXPORT:
        "OUT: config.json with quantization_config, hf_quant_config.json, weights with their scales, tokenizer files, \
         README.md, quantization_error.csv and .json",
        "export runs/half --contract presets/contracts/rtx-5070.toml --out student-nvfp4";
    LOGITS:
        "OUT",
        "logits presets/parents/tiny --tokens tokens.json --out logits.safetensors";
    PRETRAIN:
        "the run directory: recipe.toml, inputs.json, pretrain/ (metrics.jsonl, checkpoints/) and the model's folder OUT/model",
        "pretrain presets/parents/tiny/recipe.toml --out runs/tiny";
    GENERATE:
        "nothing",
        "generate presets/parents/tiny --prompt 'Rstressed=' --max-tokens 16";
    TOKENIZE:
        "OUT/shard-00000.bin, OUT/shard-00001.bin, …",
        "tokenize corpus.txt more.jsonl --out shards --tokenizer path/to/model";
}
