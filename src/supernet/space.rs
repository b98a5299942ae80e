//! The search space as a person writes it.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Result, config_file, files};

/// A search space file. An axis that is absent stays at the parent's size.
///
/// ```toml
/// hidden_size = [1920, 1792, 1664]
///
/// [mamba]
/// remove = true              # each Mamba layer may go; or heads = [64, 48, 32], one number for all
///
/// [moe]                      # each MoE layer chooses its own
/// experts = [128, 96, 64, 32]
/// intermediate = [960, 448, 0]
/// shared_intermediate = [3712, 1856, 0]
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// Where it was read from, for error messages.
    #[serde(skip)]
    pub file: PathBuf,
    /// d, of the whole model.
    pub hidden_size: Option<Vec<usize>>,
    #[serde(default)]
    pub mamba: MambaSpace,
    #[serde(default)]
    pub moe: MoeSpace,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MambaSpace {
    /// H, the same in all Mamba layers.
    pub heads: Option<Vec<usize>>,
    /// Whether each Mamba layer may be removed.
    #[serde(default)]
    pub remove: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoeSpace {
    /// E, layer by layer.
    pub experts: Option<Vec<usize>>,
    /// F, layer by layer; 0 leaves the shared expert alone, as a dense layer.
    pub intermediate: Option<Vec<usize>>,
    /// S, layer by layer; 0 leaves none. With F = 0 the layer is removed.
    pub shared_intermediate: Option<Vec<usize>>,
}

impl Space {
    /// Reads a TOML file. Sizes are checked against a parent by [`super::SearchSpace::new`].
    ///
    /// # Errors
    /// [`crate::Error::Input`] naming the file and the line where it is no such table.
    pub fn from_file(path: &Path) -> Result<Space> {
        Space::from_toml(path, &files::read_text(path)?)
    }

    /// Parses `text`; `file` is for error messages only.
    pub fn from_toml(file: &Path, text: &str) -> Result<Space> {
        let mut space: Space = config_file::parse(file, text, "a search space")?;
        space.file = file.to_path_buf();
        Ok(space)
    }
}
