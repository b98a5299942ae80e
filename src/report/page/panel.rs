//! A picture with its title and legend, as the template takes it.

use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) note: String,
    pub(super) keys: Vec<Key>,
    pub(super) svg: String,
}

/// A sample and what it stands for.
#[derive(Serialize)]
pub(super) struct Key {
    pub(super) swatch: String,
    pub(super) name: String,
}

impl Panel {
    pub(super) fn new(title: impl AsRef<str>, svg: String) -> Panel {
        Panel { title: capitalised(title.as_ref()), note: String::new(), keys: Vec::new(), svg }
    }

    pub(super) fn note(self, note: impl Into<String>) -> Panel {
        Panel { note: note.into(), ..self }
    }

    pub(super) fn keys(self, keys: impl IntoIterator<Item = (String, String)>) -> Panel {
        Panel { keys: keys.into_iter().map(|(swatch, name)| Key { swatch, name }).collect(), ..self }
    }
}

/// With a capital at its beginning; symbols stay as they are.
pub(super) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// "2 of 200 values are not finite and left out", or nothing.
pub(super) fn left_out<'a>(values: impl IntoIterator<Item = &'a f64>) -> String {
    let (mut all, mut bad) = (0, 0);
    for value in values {
        all += 1;
        bad += usize::from(!value.is_finite());
    }
    if bad == 0 { String::new() } else { format!("{bad} of {all} values are not finite and left out.") }
}
