//! Rows of task documents: whole, without padding, with targets on answers only.

use std::collections::HashSet;

use autocompress::data::tasks::TaskSource;
use autocompress::data::{BOS, Boundaries, EOS, IGNORE, PAD, Source, Split, TasksConfig};

use crate::common::{check_batch, solve, text};

#[test]
fn task_rows_are_whole_documents_without_padding() {
    let config = TasksConfig::default();
    let source = TaskSource::new(config.clone(), Split::Train).unwrap();
    let batch = source.batch(1, 2, 8, 200).unwrap();
    check_batch(&batch);
    assert!(!batch.tokens.contains(&PAD));
    let mut tags = HashSet::new();
    for segment in batch.segments.windows(2) {
        let tokens = &batch.tokens[segment[0]..segment[1]];
        let targets = &batch.targets[segment[0]..segment[1]];
        assert_eq!(tokens[0], BOS);
        let bytes: Vec<u8> = tokens.iter().map(|&token| token as u8).collect();
        tags.extend(bytes.get(1).copied());
        let cut = tokens.last() != Some(&EOS);
        assert!(!cut || segment[1] % batch.length == 0, "only the last document of a row is cut");
        let separator = bytes.iter().position(|&byte| byte == b'=');
        // Valid exactly where the next token is of the answer or EOS.
        for (at, &target) in targets.iter().enumerate() {
            let valid = separator.is_some_and(|separator| at >= separator) && at + 1 < tokens.len();
            assert_eq!(target, if valid { tokens[at + 1] } else { IGNORE });
        }
        if let (false, Some(separator)) = (cut, separator) {
            let prompt = &bytes[1..=separator];
            assert_eq!(solve(text(prompt)), text(&bytes[separator + 1..bytes.len() - 1]));
            assert_eq!(Split::of(prompt), Split::Train);
        }
    }
    assert_eq!(tags.len(), 8, "all tasks are mixed");
    assert_eq!(batch.valid_tokens(), batch.targets.iter().filter(|&&target| target != IGNORE).count());

    let joined = TasksConfig { documents: Boundaries::Joined, ..config };
    let joined = TaskSource::new(joined, Split::Train).unwrap().batch(1, 2, 8, 200).unwrap();
    assert_eq!((&joined.tokens, &joined.targets), (&batch.tokens, &batch.targets));
    assert_eq!(joined.segments, (0..=8).map(|row| row * 200).collect::<Vec<_>>());
}

#[test]
fn weights_are_shares_of_documents() {
    let config: TasksConfig = toml::from_str(
        "copy.weight = 3
         sort.weight = 1.0
         reverse.weight = 0
         modular_addition.weight = 0
         recall.weight = 0
         brackets.weight = 0
         counting.weight = 0
         induction.weight = 0",
    )
    .unwrap();
    let batch = TaskSource::new(config, Split::Train).unwrap().batch(1, 0, 16, 4096).unwrap();
    let tags: Vec<u32> =
        batch.segments.windows(2).filter_map(|pair| batch.tokens[pair[0]..pair[1]].get(1)).copied().collect();
    let copies = tags.iter().filter(|&&tag| tag == u32::from(b'C')).count();
    let sorts = tags.iter().filter(|&&tag| tag == u32::from(b'S')).count();
    assert_eq!(copies + sorts, tags.len());
    let share = copies as f64 / tags.len() as f64;
    // About 1700 documents: standard deviation 0.011.
    assert!((share - 0.75).abs() < 0.06, "{share}");
}

#[test]
fn a_task_row_depends_on_seed_step_and_row_alone() {
    let source = TaskSource::new(TasksConfig::default(), Split::Train).unwrap();
    let large = source.batch(1, 7, 4, 100).unwrap();
    let narrow = source.batch(1, 7, 2, 100).unwrap();
    assert_eq!(large.tokens[..200], narrow.tokens);
    let short = source.batch(1, 7, 4, 60).unwrap();
    assert_eq!(large.tokens[..60], short.tokens[..60]);
    assert_ne!(large.tokens, source.batch(2, 7, 4, 100).unwrap().tokens);
    assert_ne!(large.tokens, source.batch(1, 8, 4, 100).unwrap().tokens);
    assert_ne!(large.tokens[..100], large.tokens[100..200]);
}
