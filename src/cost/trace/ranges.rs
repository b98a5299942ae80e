//! Ranges of modules on a thread: what vLLM's layerwise NVTX tracing pushes and pops.

use std::rc::Rc;

/// What a range's text tells: a dict, `{'Module': 'top.model.layers.3.mixer', …, 'Inputs': [[2048, 2688]]}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    pub name: Rc<str>,
    /// N of `layers.N` in the name.
    pub layer: Option<usize>,
    /// The first dimension of the first input: tokens of the pass.
    pub rows: Option<usize>,
}

impl Module {
    /// `None` of ranges that are no module's, and of the near-empty ones that tell a module's outputs.
    pub fn parse(text: &str) -> Option<Module> {
        let name = text.split_once("'Module': '")?.1.split('\'').next()?;
        if text.contains("'Outputs'") {
            return None;
        }
        let rows = text.split_once("'Inputs': ").and_then(|(_, inputs)| {
            let digits = inputs.trim_start_matches(['[', '(']);
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits[..end].parse().ok()
        });
        Some(Module { name: name.into(), layer: layer_of(name), rows })
    }
}

/// N of `…layers.N…`.
fn layer_of(module: &str) -> Option<usize> {
    let mut parts = module.split('.');
    parts.find(|part| *part == "layers")?;
    parts.next()?.parse().ok()
}

/// An open range.
#[derive(Clone, Debug)]
pub struct Open {
    /// Nanoseconds; `i64::MAX` where it was never popped.
    pub end: i64,
    pub finished: bool,
    /// Its own layer, or that of the range around it.
    pub layer: Option<usize>,
    module: Rc<str>,
}

/// The open ranges of a thread, the innermost last.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    open: Vec<Open>,
}

impl Stack {
    /// Closes what ended before `time`.
    pub fn advance(&mut self, time: i64) {
        while self.open.last().is_some_and(|open| open.end < time) {
            self.open.pop();
        }
    }

    /// Opens a range. One without an end goes on to the end of the range around it, and no longer than the next module that
    /// is not inside its own.
    pub fn push(&mut self, start: i64, end: Option<i64>, module: &Module) {
        // Ranges nest, so what ends where this one begins is over.
        while let Some(open) = self.open.last() {
            let over = open.end <= start;
            let left = !open.finished && !is_inside(&module.name, &open.module);
            if !over && !left {
                break;
            }
            self.open.pop();
        }
        let around = self.open.last();
        let limit = around.map_or(i64::MAX, |open| open.end);
        let layer = module.layer.or(around.and_then(|open| open.layer));
        let finished = end.is_some();
        let module = Rc::clone(&module.name);
        self.open.push(Open { end: end.unwrap_or(i64::MAX).min(limit), finished, layer, module });
    }

    pub fn innermost(&self) -> Option<&Open> {
        self.open.last()
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How many are open.
    pub fn depth(&self) -> usize {
        self.open.len()
    }
}

/// Whether module `inner` is a part of `outer`.
fn is_inside(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        let text = "{'Module': 'top.model.layers.13.mixer', 'TrainableParams': 5, 'Inputs': [[2048, 2688]]}";
        let parsed = Module::parse(text).unwrap();
        assert_eq!(parsed, Module { name: "top.model.layers.13.mixer".into(), layer: Some(13), rows: Some(2048) });
        assert_eq!(Module::parse("{'Module': 'top', 'Inputs': []}").unwrap().rows, None);
        assert_eq!(Module::parse("{'Module': 'top.layersx.1'}").unwrap().layer, None);
        assert_eq!(Module::parse("{'Module': 'top.layers.1', 'Outputs': [[1]]}"), None);
        assert_eq!(Module::parse("execute_model"), None);
    }

    #[test]
    fn a_range_without_an_end_is_left_by_the_next_module() {
        let range = |name: &str| Module { name: name.into(), layer: super::layer_of(name), rows: None };
        let mut stack = Stack::default();
        stack.push(0, Some(100), &range("top"));
        stack.push(10, None, &range("top.layers.1"));
        stack.push(12, Some(14), &range("top.layers.1.norm"));
        assert_eq!((stack.depth(), stack.innermost().unwrap().layer), (3, Some(1)));
        stack.advance(20);
        assert_eq!((stack.depth(), stack.innermost().unwrap().layer), (2, Some(1)));
        stack.push(30, Some(40), &range("top.layers.2"));
        assert_eq!((stack.depth(), stack.innermost().unwrap().layer), (2, Some(2)));
        stack.advance(101);
        assert!(stack.is_empty());
    }
}
