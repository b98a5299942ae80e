//! The main job: a parent, a deployment and its limits in; a measured student within them and a report out.
//!
//! | stage | reads | leaves in the run directory |
//! |---|---|---|
//! | [`rank`] | the parent, calibration tokens | `rank/importance.json` |
//! | [`profile`] | the space, the contract, the parent | `cost/` |
//! | [`search`] | `rank/`, `cost/` | `search/` |
//! | or [`screen`] | `rank/`, `cost/` | `screen/` |
//! | [`extract`] | `search/` or `screen/`, `cost/`, `rank/` | `extract/`, `student/` |
//! | [`recover`] | `student/`, the parent | `recover/`, `recovered/` |
//! | [`evaluate`] | the parent, `student/`, `recovered/` | `evaluate/` |
//! | [`measure`] | the parent, `recovered/`, `cost/` | `measure/` |
//! | [`report`] | all of it | `report.json`, `report.html` |
//!
//! `student/` and `recovered/` hold a model card each ([`card`]), which the report writes again with what it knows by then.
//!
//! A stage that is complete is skipped while what it reads is unchanged; one that was stopped goes on where it was. What a
//! complete stage left is verified before it is used: a file that is damaged or was edited is refused by name.
//!
//! Of a deployment that is not at hand, such as vLLM on another machine, [`profile`] takes a table that was measured there,
//! estimates what that lacks, and all stages up to [`evaluate`] go by its predictions. [`measure`] refuses.
//!
//! A [`Method`] says how the architecture is chosen: by the search, or by the screening of the baseline Minitron++. All else
//! is the same code. A run directory belongs to one method.

pub mod card;
pub mod evaluate;
pub mod extract;
pub mod measure;
mod memory;
pub mod profile;
pub mod quickstart;
pub mod rank;
mod recipe;
pub mod recover;
pub mod report;
pub mod screen;
pub mod search;
mod stage;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub use recipe::{
    EvaluateRecipe, MeasureRecipe, MinitronRecipe, ProfileRecipe, RankRecipe, Recipe, RecoverRecipe, SearchRecipe,
};
pub use stage::{Method, Stage};

use crate::cost::Contract;
use crate::data::{DataConfig, Source, Tokenizer};
use crate::model::checkpoint::{DiskDtype, MtpChoice, SaveOptions};
use crate::model::{Lm, load};
use crate::run::{Input, RECIPE, RunDir, digest_bytes, digest_file};
use crate::stages::evaluate::RecordSet;
use crate::supernet::{Importance, SearchSpace, Space, sort};
use crate::train::Progress;
use crate::{Error, Result, files};

/// A compression in its run directory. All that a user wrote is read and checked before anything is made.
pub struct Compression {
    pub method: Method,
    pub recipe: Recipe,
    pub recipe_path: PathBuf,
    pub contract: Contract,
    pub space: SearchSpace,
    /// Without its multi-token prediction head.
    pub parent: Lm,
    pub run: RunDir,
    /// Digests of what the recipe reads, by name.
    pub inputs: BTreeMap<String, String>,
    /// The format of most of the parent's weights, and so of the student's.
    pub dtype: DiskDtype,
    /// Data to train on, and data to compare losses on.
    source: Arc<dyn Source>,
    held_out: Arc<dyn Source>,
    records: Option<RecordSet>,
    /// Stages whose outputs this process found to be what they left.
    verified: Mutex<BTreeSet<Stage>>,
    quiet: bool,
    /// Whether it is the first stages of a study, which has no `--from`.
    of_study: bool,
}

impl Compression {
    /// Reads the recipe and what it names, and opens or makes the run directory `out`.
    ///
    /// # Errors
    /// What is wrong with any of the files, before any work is done; [`Error::Input`] too where `out` belongs to another
    /// recipe, or an input has changed since.
    pub fn open(recipe_path: &Path, out: &Path, quiet: bool) -> Result<Compression> {
        Compression::open_for(Method::Search, recipe_path, out, quiet)
    }

    /// The same by `method`; [`Error::Input`] too where `out` is a run directory of another one.
    pub fn open_for(method: Method, recipe_path: &Path, out: &Path, quiet: bool) -> Result<Compression> {
        Compression::with(method, recipe_path, quiet, &|recipe, inputs| RunDir::create_or_open(out, recipe, inputs))
    }

    /// The same, of a run directory that is there: where it is not, it is not made.
    pub fn open_existing(recipe_path: &Path, out: &Path, quiet: bool) -> Result<Compression> {
        Compression::with(Method::Search, recipe_path, quiet, &|recipe, inputs| RunDir::open(out, recipe, inputs))
    }

    /// The same for a study, whose command makes again what is not there.
    pub fn of_study(self) -> Compression {
        Compression { of_study: true, ..self }
    }

    fn with(
        method: Method,
        recipe_path: &Path,
        quiet: bool,
        directory: &dyn Fn(&str, &[Input]) -> Result<RunDir>,
    ) -> Result<Compression> {
        let recipe = Recipe::from_file(recipe_path)?;
        let contract = Contract::from_named_file(&recipe.contract)?;
        if let Some(table) = recipe.profile.table.as_ref().filter(|_| contract.is_served_here()) {
            let expected = "no table: what this program serves itself, it measures itself";
            return Err(Error::input(recipe_path, "profile.table", table.display().to_string(), expected));
        }
        let space = Space::from_file(recipe.space_of(method))?;
        let stored = load(&recipe.parent, MtpChoice::Drop)?;
        let space = SearchSpace::new(&space, &stored.lm.config)?;
        let dtype = stored.dtypes.first().copied().unwrap_or(DiskDtype::BF16);
        let mut parent = stored.lm;
        parent.config.mtp = None;
        memory::check(&recipe, recipe_path, &contract, &space)?;
        let Sources { source, held_out } = Sources::open(&recipe, recipe_path, parent.config.vocab_size)?;
        let read = |records: &PathBuf| {
            RecordSet::from_file(records, &Tokenizer::of_model(&recipe.parent, None)?, parent.config.vocab_size)
        };
        let records = recipe.evaluate.records.as_ref().map(read).transpose()?;
        evaluate::check_held_out(&recipe, recipe_path, &held_out)?;
        let inputs = inputs(&recipe, method)?;
        let run =
            directory(&files::read_text(recipe_path)?, &inputs).map_err(|error| of_another_method(error, "--out"))?;
        let recipe_path = recipe_path.to_path_buf();
        let inputs = inputs.into_iter().map(|input| (input.name, input.digest)).collect();
        Ok(Compression {
            method,
            recipe,
            recipe_path,
            contract,
            space,
            parent,
            run,
            inputs,
            dtype,
            source,
            held_out,
            records,
            verified: Mutex::default(),
            quiet,
            of_study: false,
        })
    }

    /// A run directory of `method` with the ranking and the cost table of the run directory `like` of a search by the same
    /// recipe, so that both are held to the same numbers. Where `like` is not that, nothing is made at `out`.
    ///
    /// # Errors
    /// [`Error::Usage`] where they are not complete there, or `out` has others already; [`Error::Input`] where `like` is of
    /// another recipe, of other inputs or of another device, or damaged.
    pub fn open_like(method: Method, recipe_path: &Path, out: &Path, like: &Path, quiet: bool) -> Result<Compression> {
        let search = Cell::new(None);
        let compression = Compression::with(method, recipe_path, quiet, &|recipe, inputs| {
            let like = open_search(like, recipe, inputs)?;
            let profile = [Stage::Rank, Stage::Profile].iter().flat_map(|stage| stage.outputs());
            if let Some(missing) = profile.map(|output| like.path().join(output)).find(|output| !output.exists()) {
                let like = like.path().display();
                let missing = missing.display();
                return Err(Error::Usage(format!(
                    "--like {like}: found no {missing}, expected `profile` done there first"
                )));
            }
            profile::check_device(like.path())?;
            search.set(Some(like));
            RunDir::create_or_open(out, recipe, inputs)
        })?;
        if let Some(search) = search.take() {
            compression.take_profile(&search)?;
        }
        Ok(compression)
    }

    fn take_profile(&self, other: &RunDir) -> Result<()> {
        for stage in [Stage::Rank, Stage::Profile] {
            let digest = self.digest(stage)?;
            let fault = |run: &RunDir, found: &str, expected: &str| {
                let run = run.path().display();
                Err(Error::Usage(format!("{run}: found {found} `{stage}`, expected {expected}")))
            };
            if !other.is_complete(stage.name(), &digest)? {
                return fault(other, "no complete", "it done there first");
            }
            other.verify(stage.name())?;
            if self.is_current(stage, &digest)? {
                if self.run.outputs(stage.name())? == other.outputs(stage.name())? {
                    continue;
                }
                return fault(&self.run, "another", "that of --like: give another --out");
            }
            self.discard(stage)?;
            for output in stage.outputs() {
                let bytes = files::read(&other.path().join(output))?;
                self.run.folder(output.split('/').next().unwrap_or_default())?;
                files::write_atomic(&self.path(output), |file| file.write_all(&bytes))?;
            }
            let seconds = other.seconds(stage.name())?.unwrap_or(0.0);
            self.run.mark_complete(stage.name(), &digest, seconds, stage.outputs())?;
        }
        Ok(())
    }

    /// Does the stages from the first that is not complete to `until`. With `from`, the stages from there to `until` are done
    /// again. What later stages left stays: where it was made from other inputs than there are then, they are done again when
    /// their turn comes.
    ///
    /// # Errors
    /// Those of the stages; [`Error::Input`] before any work where `until` is behind [`Compression::last`].
    pub fn run(&self, from: Option<Stage>, until: Stage) -> Result<()> {
        if until > self.last() {
            return self.contract.measured_here();
        }
        if let Some(from) = from {
            for stage in self.method.stages().filter(|stage| (from..=until).contains(stage)) {
                self.discard(stage)?;
            }
        }
        self.method.stages().filter(|stage| *stage <= until).try_for_each(|stage| self.stage(stage))
    }

    /// Does one stage alone.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the stage before it that is not complete.
    pub fn only(&self, stage: Stage) -> Result<()> {
        if stage > self.last() {
            return self.contract.measured_here();
        }
        for before in self.reads(stage) {
            if !self.is_complete(before)? {
                let run = self.run.path().display();
                return Err(Error::Usage(format!(
                    "{run}: `{stage}` reads what `{before}` makes: found `{before}` not complete, expected it done first"
                )));
            }
        }
        self.stage(stage)
    }

    /// Whether `stage` and all it was made from are complete, and of one piece.
    ///
    /// # Errors
    /// [`Error::Input`] naming a file of theirs that is not what the stage left.
    pub fn is_complete(&self, stage: Stage) -> Result<bool> {
        let mut complete = Vec::new();
        for one in self.method.stages().filter(|one| *one <= stage) {
            let read = self.reads(one).all(|before| complete.contains(&before));
            if read && self.is_current(one, &self.digest(one)?)? {
                complete.push(one);
            }
        }
        Ok(complete.contains(&stage))
    }

    /// The last stage that can be done where this program runs.
    pub fn last(&self) -> Stage {
        if self.contract.is_served_here() { Stage::Report } else { Stage::Evaluate }
    }

    /// Whether the measured student is within every limit; `None` before it is measured.
    pub fn met(&self) -> Result<Option<bool>> {
        if self.is_complete(Stage::Measure)? {
            measure::read(self).map(|measured| Some(measured.met))
        } else {
            Ok(None)
        }
    }

    /// Whether `stage` was completed from inputs of this digest, and its outputs are there.
    fn is_current(&self, stage: Stage, digest: &str) -> Result<bool> {
        let there = stage.outputs().iter().all(|output| self.path(output).exists());
        let complete = there && self.run.is_complete(stage.name(), digest).map_err(|error| self.with_way_out(error))?;
        if complete && !self.verified().contains(&stage) {
            self.run.verify(stage.name()).map_err(|error| self.with_way_out(error))?;
            self.verified().insert(stage);
        }
        Ok(complete)
    }

    fn verified(&self) -> std::sync::MutexGuard<'_, BTreeSet<Stage>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a stage, unless it is current; the stages that it reads are complete.
    fn stage(&self, stage: Stage) -> Result<()> {
        self.do_stage(stage).map_err(|error| self.with_way_out(error))
    }

    fn do_stage(&self, stage: Stage) -> Result<()> {
        let digest = self.digest(stage)?;
        if self.is_current(stage, &digest)? {
            // What is measured on another device is not what was asked for.
            return if stage.measures() { profile::read_here(self).map(drop) } else { Ok(()) };
        }
        if !self.run.begin(stage.name(), &digest)? {
            self.discard(stage)?;
            self.run.begin(stage.name(), &digest)?;
        }
        let start = Instant::now();
        match stage {
            Stage::Rank => rank::run(self),
            Stage::Profile => profile::run(self),
            Stage::Search => search::run(self),
            Stage::Screen => screen::run(self),
            Stage::Extract => extract::run(self),
            Stage::Recover => recover::run(self),
            Stage::Evaluate => evaluate::run(self),
            Stage::Measure => measure::run(self),
            Stage::Report => report::run(self),
        }?;
        let files = [stage.outputs(), stage.records()].concat();
        self.run.mark_complete(stage.name(), &digest, start.elapsed().as_secs_f64(), &files)?;
        self.verified().insert(stage);
        Ok(())
    }

    /// The stages that `stage` reads, those of the method.
    fn reads(&self, stage: Stage) -> impl Iterator<Item = Stage> {
        self.method.stages().filter(move |before| stage.reads().contains(before))
    }

    /// Of the outputs that `stage` reads. The recipe and its inputs are the run directory's own: they cannot change.
    fn digest(&self, stage: Stage) -> Result<String> {
        let mut text = stage.name().to_owned();
        for before in self.reads(stage) {
            for (name, digest) in self.run.outputs(before.name())? {
                text += &format!(" {name} {digest}");
            }
        }
        Ok(digest_bytes(text.as_bytes()))
    }

    /// Where a fault is in what a stage left, says how to have it made again.
    fn with_way_out(&self, error: Error) -> Error {
        let file = match &error {
            Error::Input { file, .. } => file,
            Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => path,
            _ => return error,
        };
        let Ok(within) = file.strip_prefix(self.run.path()) else { return error };
        let Some(stage) = Stage::that_made(within) else { return error };
        let way = match self.of_study {
            // A stage's marker lies among those of others, all else of it in a folder of its own.
            true if within.starts_with("stages") => format!("delete {}, and `study` makes it again", file.display()),
            true => {
                let folder = self.path(&within.iter().next().unwrap_or_default().to_string_lossy());
                format!("delete {}, and `study` makes it again", folder.display())
            }
            false => format!("`{} --from {stage}` makes it again", self.method.command()),
        };
        match error {
            Error::Input { file, at, found, expected } if !expected.ends_with(&way) => {
                Error::Input { file, at, found, expected: format!("{expected}; {way}") }
            }
            Error::Io { path, .. } => Error::input(path, "file", "no such file", format!("what `{stage}` left; {way}")),
            other => other,
        }
    }

    /// Removes what `stage` made. The marker goes last: until then it says what is there.
    fn discard(&self, stage: Stage) -> Result<()> {
        for output in stage.folders() {
            let path = self.path(output);
            if path.is_dir() {
                files::remove_dir(&path)?;
            } else if path.exists() {
                std::fs::remove_file(&path).map_err(Error::io(&path, "remove"))?;
            }
        }
        self.verified().remove(&stage);
        self.run.forget(stage.name())
    }

    /// The path of a file or folder in the run directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.run.path().join(name)
    }

    pub fn progress(&self, what: &str, steps: u64) -> Progress {
        Progress::new(what, steps, self.quiet)
    }

    /// The training data, read once.
    pub fn source(&self) -> Box<dyn Source> {
        Box::new(Arc::clone(&self.source))
    }

    /// The parent with its most important components first.
    pub fn sorted(&self) -> Result<Lm> {
        sort(&self.parent, &Importance::from_file(&self.path(rank::IMPORTANCE))?)
    }

    /// Writes a student into the folder `name` of the run directory, with the parent's tokenizer.
    fn save(&self, name: &str, lm: &Lm) -> Result<()> {
        let options = SaveOptions { copy_from: Some(&self.recipe.parent), ..SaveOptions::default() };
        crate::model::save(&self.path(name), lm, |_| self.dtype, &options)?;
        Ok(())
    }

    fn load(&self, name: &str) -> Result<Lm> {
        Ok(load(&self.path(name), MtpChoice::Drop)?.lm)
    }
}

/// A recipe's data, read once.
struct Sources {
    source: Arc<dyn Source>,
    held_out: Arc<dyn Source>,
}

impl Sources {
    /// `evaluate.held_out` where the recipe has it; else a part of the data, which training then does not see.
    fn open(recipe: &Recipe, recipe_path: &Path, vocab_size: usize) -> Result<Sources> {
        let within = |table: &'static str| move |error: Error| error.within_table(recipe_path, table);
        let [source, held_out] = match &recipe.evaluate.held_out {
            Some(held_out) => [
                recipe.data.source(vocab_size).map_err(within("data"))?,
                held_out.held_out(vocab_size).map_err(within("evaluate.held_out"))?,
            ],
            None => recipe.data.split(vocab_size).map_err(within("data"))?,
        };
        Ok(Sources { source: Arc::from(source), held_out: Arc::from(held_out) })
    }
}

/// Opens a run directory of a search by a recipe whose baseline's part may be another.
fn open_search(run: &Path, recipe: &str, inputs: &[Input]) -> Result<RunDir> {
    let own = inputs.iter().filter(|input| input.name != BASELINE);
    let inputs: Vec<Input> =
        own.map(|input| Input { name: input.name.clone(), digest: input.digest.clone() }).collect();
    let theirs = files::read_text(&run.join(RECIPE)).unwrap_or_default();
    let recipe = if same_search(recipe, &theirs) { &theirs } else { recipe };
    RunDir::open(run, recipe, &inputs).map_err(|error| of_another_method(error, "--like"))
}

/// Whether two recipes say the same to a search: what a baseline alone reads may differ.
fn same_search(one: &str, other: &str) -> bool {
    let read = |text: &str| -> Option<toml::Table> {
        let mut table: toml::Table = text.parse().ok()?;
        table.remove("minitron");
        Some(table)
    };
    read(one).is_some_and(|table| read(other) == Some(table))
}

/// The input by which a run directory says that it belongs to a baseline.
const BASELINE: &str = "baseline";

/// Says of a run directory of another method that it is one.
fn of_another_method(error: Error, option: &str) -> Error {
    match error {
        Error::Input { file, at, found, .. } if at == BASELINE => {
            let (found, expected) = match found.contains("no such") {
                true => (Method::Search, Method::Minitron),
                false => (Method::Minitron, Method::Search),
            };
            let [found, expected] =
                [found, expected].map(|method| format!("a run directory of `{}`", method.command()));
            Error::Input { file, at: "method".into(), found, expected: format!("{expected}: give another {option}") }
        }
        other => other,
    }
}

fn inputs(recipe: &Recipe, method: Method) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    let mut add = |name: String, path: &Path| -> Result<()> {
        if inputs.iter().all(|input: &Input| input.name != name) {
            inputs.push(Input { name, digest: digest_file(path)? });
        }
        Ok(())
    };
    add("space".into(), recipe.space_of(method))?;
    add("contract".into(), &recipe.contract)?;
    if let Some(table) = &recipe.profile.table {
        add("table".into(), table)?;
    }
    for path in files_in(&recipe.parent)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "config.json" || name.contains(".safetensors") {
            add(format!("parent/{name}"), &path)?;
        }
    }
    let data = |data: &DataConfig| data.input_files();
    let held_out = recipe.evaluate.held_out.as_ref().map_or(Ok(Vec::new()), data)?;
    let records = recipe.evaluate.records.iter().cloned();
    for path in data(&recipe.data)?.into_iter().chain(held_out).chain(records) {
        add(path.display().to_string(), &path)?;
    }
    inputs.extend(crate::stages::precision_input());
    if method == Method::Minitron {
        inputs.push(Input { name: BASELINE.into(), digest: "minitron".into() });
    }
    Ok(inputs)
}

/// The files directly in a folder, by name.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(Error::io(folder, "read"))?;
    let paths =
        entries.map(|entry| Ok(entry.map_err(Error::io(folder, "read"))?.path())).collect::<Result<Vec<_>>>()?;
    let mut paths: Vec<PathBuf> = paths.into_iter().filter(|path| path.is_file()).collect();
    paths.sort();
    Ok(paths)
}
