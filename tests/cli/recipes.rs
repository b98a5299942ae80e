//! Recipes that cannot be.

use std::fs;

use crate::common::{Folder, run, tokenizer};

/// Changes one place of the tasks' recipe; nothing may be made.
#[track_caller]
fn refused(from: &str, to: &str, code: i32, parts: &[&str]) {
    let folder = Folder::new();
    let recipe = folder.recipe_with(from, to);
    folder.pretrain(&recipe, "run").refused(code, parts);
    assert!(!folder.names("").contains(&"run".into()));
}

#[test]
fn text_that_is_no_recipe_is_refused_by_line_and_key() {
    refused("[model]", "hello", 2, &["recipe.toml", "line 1, `hello`"]);
    refused("seed = 3", "sead = 3", 2, &["line 3, `sead = 3`", "unknown field", "`config`, `seed`, `dtype`"]);
    refused(
        "[train]",
        "[trian]",
        2,
        &["line 9", "trian", "`model`, `data`, `routing`, `train`: did you mean `train`?"],
    );
    refused("steps = 4", "steps = \"four\"", 2, &["line 10, `steps = \"four\"`", "string"]);
    refused("steps = 4", "steps = -1", 2, &["line 10, `steps = -1`", "-1"]);
    refused("steps = 4", "steps = 4\nsteps = 5", 2, &["line 11, `steps = 5`", "duplicate key"]);
    refused("steps = 4\n", "", 2, &["line 9, `[train]`", "missing field `steps`"]);
    refused("\"f32\"", "\"f31\"", 2, &["line 4, `dtype = \"f31\"`", "f31", "`f32` or `bf16`"]);
    refused("config = \"config.json\"", "config = 3", 2, &["line 2, `config = 3`", "integer"]);
    let tasks = "kind = \"tasks\"";
    refused(tasks, "kind = \"task\"", 2, &["line 7, `kind = \"task\"`", "\"tasks\", \"text\", \"shards\""]);
    refused(tasks, "", 2, &["line 6, `[data]`", "missing field `kind`"]);
    refused(tasks, "kind = \"tasks\"\ncoppy = {}", 2, &["line 8, `coppy = {}`", "`copy`, `reverse`"]);
    refused(tasks, "kind = \"tasks\"\ncopy = { weight = \"a\" }", 2, &["line 8", "`copy.weight`", "string"]);
    refused(tasks, "kind = \"tasks\"\ncopy.size = 3", 2, &["line 8", "`copy`", "`size`", "`max_length`"]);
    refused(tasks, "kind = \"text\"\npaths = 3", 2, &["line 8, `paths = 3`", "`paths`", "integer"]);
    refused(tasks, "kind = \"text\"\npaths = []\nsep = 1", 2, &["line 9, `sep = 1`", "`separate_by`"]);
    refused(tasks, "kind = \"text\"", 2, &["line 6, `[data]`", "missing field `paths`"]);
    let folder = Folder::new();
    folder.pretrain(&folder.file("r.toml", ""), "run").refused(2, &["r.toml", "missing field `model`"]);
    folder.pretrain(&folder.file("r.toml", [0xff]), "run").refused(2, &["r.toml", "UTF-8"]);
    folder.pretrain(&folder.at("none.toml"), "run").refused(2, &["none.toml", "No such file"]);
    folder.pretrain(&folder.at(""), "run").refused(2, &["found a folder, expected a file"]);
    assert_eq!(folder.names(""), ["r.toml"]);
}

#[test]
fn values_out_of_range_are_refused_by_key() {
    refused("steps = 4", "steps = 0", 2, &["recipe.toml", "train.steps", "0 steps", "at least 1"]);
    refused("sequences = 4", "sequences = 0", 2, &["sequences", "0"]);
    refused("length = 64", "length = 1", 2, &["length", "at least 1, 1 and 2"]);
    refused("length = 64", "length = 64\nmicro_batches = 3", 2, &["train.micro_batches", "3", "a divisor of 4"]);
    refused("length = 64", "length = 64\nmicro_batches = 0", 2, &["train.micro_batches", "0"]);
    for rate in ["-3e-3", "nan", "0.0", "inf", "1e39"] {
        refused("3e-3", rate, 2, &["train.learning_rate", "a finite number above 0"]);
    }
    refused("3e-3", "3e-3\nmin_learning_rate = 1.0", 2, &["train.min_learning_rate", "train.learning_rate"]);
    refused("3e-3", "3e-3\nweight_decay = inf", 2, &["train.weight_decay", "inf", "finite"]);
    refused("3e-3", "3e-3\nbeta2 = 1.0", 2, &["train.beta2", "below 1"]);
    refused("3e-3", "3e-3\nmax_grad_norm = nan", 2, &["train.max_grad_norm", "NaN"]);
    refused("checkpoint_every = 2", "checkpoint_every = 0", 2, &["train.checkpoint_every", "0", "at least 1"]);
    let int4 = "checkpoint_every = 2\nprecision = \"int4\"";
    refused("checkpoint_every = 2", int4, 2, &["recipe.toml", "int4", "`f32`, `bf16`, `fp8`, `nvfp4`"]);
    for share in ["1.5", "-0.1", "nan"] {
        let wide = format!("checkpoint_every = 2\nwide_layers = {share}");
        refused("checkpoint_every = 2", &wide, 2, &["train.wide_layers", "from 0 to 1"]);
    }
    let most = "sequences = 9223372036854775807";
    refused("sequences = 4", most, 2, &["train.sequences", "fewer than 2^64"]);
    refused("sequences = 4", "sequences = 1000000000000", 1, &["training", "GiB of memory"]);
    let tasks = "kind = \"tasks\"";
    refused(tasks, "kind = \"tasks\"\ncopy.weight = -1", 2, &["recipe.toml", "copy.weight", "-1"]);
    refused(tasks, "kind = \"text\"\npaths = []", 2, &["recipe.toml", "data.paths", "an empty list"]);
}

#[test]
fn what_a_recipe_names_must_be_there_and_fit() {
    refused("config.json", "none.json", 2, &["none.json", "No such file"]);
    let tasks = "kind = \"tasks\"";
    for (kind, path) in [("text", "none.txt"), ("text", "none.jsonl"), ("shards", "none.bin"), ("shards", "none")] {
        let data = format!("kind = \"{kind}\"\npaths = [\"{path}\"]");
        refused(tasks, &data, 2, &[path, "No such file"]);
    }
    let folder = Folder::new();
    folder.file("a.txt", "small big");
    let words = folder.file("words.json", tokenizer(300));
    let recipe = folder.recipe("kind = \"text\"\npaths = [\"a.txt\"]\ntokenizer = \"words.json\"");
    folder.pretrain(&recipe, "run").refused(2, &["a.txt", "document 0, token 1", "300", "256"]);
    run(["tokenize", &folder.at("a.txt"), "--out", &folder.at("shards"), "--tokenizer", &words]).ok();
    let recipe = folder.recipe("kind = \"shards\"\npaths = [\"shards\"]");
    folder.pretrain(&recipe, "run").refused(2, &["shard-00000.bin", "token 1", "300", "256"]);
    let shard = folder.read("shards/shard-00000.bin");
    fs::write(folder.path().join("shards/shard-00000.bin"), &shard[..shard.len() - 1]).unwrap();
    folder.pretrain(&recipe, "run").refused(2, &["shard-00000.bin", "length", "expected"]);
    // A vocabulary without the tasks' letters.
    let recipe = folder.recipe(tasks);
    let small =
        String::from_utf8(folder.read("config.json")).unwrap().replace("\"vocab_size\":256", "\"vocab_size\":64");
    folder.file("config.json", small);
    folder.pretrain(&recipe, "run").refused(2, &["recipe.toml", "vocabulary of 64", "at least 128"]);
    assert!(!folder.names("").contains(&"run".into()));
    // A head that training has no loss for: without it, the model could not be saved.
    let recipe = folder.recipe(tasks);
    let head = "\"num_nextn_predict_layers\":1,\"vocab_size\":256";
    let config = String::from_utf8(folder.read("config.json")).unwrap().replace("\"vocab_size\":256", head);
    folder.file("config.json", config);
    folder.pretrain(&recipe, "run").refused(2, &["config.json", "num_nextn_predict_layers", "found 1, expected 0"]);
    assert!(!folder.names("").contains(&"run".into()));
    // Data whose answers begin beyond the row.
    let recipe = folder.recipe_with("length = 64", "length = 2");
    folder.pretrain(&recipe, "short").refused(2, &["no token to predict", "train.length"]);
}
