//! The YAML at the head of a model card, by which hubs list models.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value};

/// Keys of a model card's head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrontMatter {
    /// The model that it was made from.
    pub base_model: String,
    /// "quantized", where the hub has a word for what was done.
    pub relation: Option<&'static str>,
    pub library: &'static str,
    pub tags: Vec<String>,
    /// Lines of another card that hold for this model too, see [`inherited`].
    pub inherited: Vec<String>,
}

impl FrontMatter {
    pub fn text(&self) -> String {
        let mut text = "---\n".to_owned();
        let _ = writeln!(text, "base_model: {}", quoted(&self.base_model));
        if let Some(relation) = self.relation {
            let _ = writeln!(text, "base_model_relation: {relation}");
        }
        let _ = writeln!(text, "library_name: {}\npipeline_tag: text-generation", self.library);
        self.inherited.iter().for_each(|line| text.extend([line.as_str(), "\n"]));
        text.push_str("tags:\n");
        self.tags.iter().for_each(|tag| text.extend(["- ", &quoted(tag), "\n"]));
        text.push_str("---\n");
        text
    }
}

/// A YAML scalar: JSON's strings are strings of YAML.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(plain);
    let reserved = ["true", "false", "yes", "no", "on", "off", "null"].contains(&text.to_ascii_lowercase().as_str());
    if is_word && !reserved { text.to_owned() } else { Value::from(text).to_string() }
}

/// The name of the model in `folder`: its repository where `config.json` tells one, else the folder's.
pub fn base_model(folder: &Path, config: &Map<String, Value>) -> String {
    let repository = config.get("_name_or_path").and_then(Value::as_str);
    let is_repository = |name: &&str| {
        let mut parts = name.split('/');
        let named = |part: Option<&str>| part.is_some_and(|part| !part.is_empty() && !part.starts_with('.'));
        named(parts.next()) && named(parts.next()) && parts.next().is_none()
    };
    let own = || {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    };
    repository.filter(is_repository).map_or_else(own, str::to_owned)
}

/// What holds for models made from that of the card `text`: the lines of its license. And the card without its head.
pub fn inherited(text: &str) -> (Vec<String>, String) {
    let text = text.replace("\r\n", "\n");
    let Some((head, body)) = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n")) else {
        return (Vec::new(), text);
    };
    let keys = ["license:", "license_name:", "license_link:"];
    // Whole values alone: the others go on in lines that have no key.
    let is_whole = |line: &str| {
        let value = line.split_once(':').map_or("", |(_, value)| value.trim());
        let quotes = |quote| value.matches(quote).count() % 2 == 0;
        let opens = |c: char| value.starts_with(c);
        quotes('"') && quotes('\'') && !['[', '{', '|', '>', '&', '*'].into_iter().any(opens) && !value.is_empty()
    };
    let lines = head.lines().filter(|line| keys.iter().any(|key| line.starts_with(key)) && is_whole(line));
    (lines.map(str::to_owned).collect(), body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_quoted_where_yaml_would_read_something_else() {
        for (text, yaml) in [
            ("nvidia/Nano-30B", "nvidia/Nano-30B"),
            ("a: b", "\"a: b\""),
            ("no", "\"no\""),
            ("3.5", "\"3.5\""),
            ("", "\"\""),
            ("é\"", "\"é\\\"\""),
        ] {
            assert_eq!(quoted(text), yaml);
        }
    }

    #[test]
    fn a_license_is_inherited_and_nothing_else() {
        let card = "---\nlicense: other\nlicense_name: open\ntags:\n- a\n---\n# Title\n";
        assert_eq!(inherited(card), (vec!["license: other".into(), "license_name: open".into()], "# Title\n".into()));
        assert_eq!(inherited(&card.replace('\n', "\r\n")), inherited(card));
        assert_eq!(inherited("# Title\n---\n"), (Vec::new(), "# Title\n---\n".into()));
    }

    #[test]
    fn a_model_is_named_by_its_repository_or_its_folder() {
        let config = |name: &str| Map::from_iter([("_name_or_path".to_owned(), Value::from(name))]);
        let named = |name: &str| base_model(Path::new("models/tiny"), &config(name));
        assert_eq!(named("nvidia/Nano"), "nvidia/Nano");
        for path in ["/home/me/model", "./model", "a/b/c", "model", "../x", ""] {
            assert_eq!(named(path), "tiny", "{path}");
        }
    }
}
