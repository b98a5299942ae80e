//! Tasks: splits never overlap, answers are right, scoring is exact.

use std::collections::HashSet;

use autocompress::Error;
use autocompress::data::tasks::{TaskSource, exact_match, held_out};
use autocompress::data::{BOS, EOS, Example, PAD, Split, Task, TasksConfig};

use crate::common::{solve, text};

/// Every task with a prompt space of about a hundred or fewer.
fn small() -> TasksConfig {
    toml::from_str(
        "copy = { min_length = 1, max_length = 2, alphabet = 6 }
         reverse = { min_length = 1, max_length = 2, alphabet = 6 }
         sort = { min_length = 1, max_length = 2, alphabet = 6 }
         modular_addition = { modulus = 8 }
         recall = { min_pairs = 1, max_pairs = 2, keys = 3, values = 3, queries = 1 }
         brackets = { min_length = 1, max_length = 6, max_depth = 3, kinds = 2 }
         counting = { min_length = 1, max_length = 5, alphabet = 2 }
         induction = { min_period = 1, max_period = 3, alphabet = 3, continuation = 2 }",
    )
    .unwrap()
}

/// Every task with one or two prompts.
fn tiniest() -> TasksConfig {
    toml::from_str(
        "copy = { min_length = 1, max_length = 1, alphabet = 1 }
         reverse = { min_length = 1, max_length = 1, alphabet = 1 }
         sort = { min_length = 1, max_length = 1, alphabet = 1 }
         modular_addition = { modulus = 1 }
         recall = { min_pairs = 1, max_pairs = 1, keys = 1, values = 1, queries = 1 }
         brackets = { min_length = 1, max_length = 1, max_depth = 1, kinds = 1 }
         counting = { min_length = 1, max_length = 1, alphabet = 1 }
         induction = { min_period = 1, max_period = 1, alphabet = 1, continuation = 1 }",
    )
    .unwrap()
}

#[test]
fn splits_never_overlap() {
    for (config, draws) in [(TasksConfig::default(), 4000), (small(), 4000)] {
        for task in Task::ALL {
            let prompts = |split, seeds: &[u64]| -> HashSet<Vec<u8>> {
                let each = seeds.iter().flat_map(|&seed| (0..draws).map(move |index| (seed, index)));
                each.map(|(seed, index)| config.example(task, seed, split, index).unwrap().prompt).collect()
            };
            // Different seeds, as a run that trains with one seed and is judged with another's held-out set.
            let train = prompts(Split::Train, &[1, 2, 3]);
            let held_out = prompts(Split::HeldOut, &[1, 9]);
            assert!(!train.is_empty() && !held_out.is_empty());
            assert_eq!(train.intersection(&held_out).count(), 0, "{}", task.name());
        }
    }
}

#[test]
fn small_spaces_are_covered_and_about_an_eighth_is_held_out() {
    let config = small();
    let prompts = |split| -> HashSet<Vec<u8>> {
        (0..3000).map(|index| config.example(Task::ModularAddition, 1, split, index).unwrap().prompt).collect()
    };
    let (train, held_out) = (prompts(Split::Train), prompts(Split::HeldOut));
    assert_eq!(train.len() + held_out.len(), 64, "both splits together are all prompts");
    assert!((2..=16).contains(&held_out.len()), "{}", held_out.len());
}

#[test]
fn an_empty_split_is_an_error_and_no_endless_loop() {
    let config = tiniest();
    for task in Task::ALL {
        let results = [Split::Train, Split::HeldOut].map(|split| config.example(task, 0, split, 0));
        let failed: Vec<&Error> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        // One prompt is in exactly one split.
        assert_eq!(failed.len(), 1, "{}", task.name());
        assert!(matches!(failed[0], Error::Usage(_)));
        assert!(failed[0].to_string().starts_with(&format!("{}: found no ", task.name())), "{}", failed[0]);
    }
    assert!(held_out(&config, 0, 3).is_err());
}

#[test]
fn answers_are_right() {
    let config = TasksConfig::default();
    for task in Task::ALL {
        for split in [Split::Train, Split::HeldOut] {
            for index in 0..500 {
                let Example { prompt, answer } = config.example(task, 3, split, index).unwrap();
                assert_eq!(solve(text(&prompt)), text(&answer), "{}", text(&prompt));
            }
        }
    }
}

#[test]
fn examples_are_ascii_tagged_separated_and_short() {
    let config = TasksConfig::default();
    assert_eq!(Task::ALL.iter().map(|task| task.tag()).collect::<HashSet<_>>().len(), 8);
    let mut longest = 0;
    for task in Task::ALL {
        for index in 0..2000 {
            let example = config.example(task, 5, Split::Train, index).unwrap();
            let bytes: Vec<u8> = example.prompt.iter().chain(&example.answer).copied().collect();
            assert!(bytes.iter().all(|byte| byte.is_ascii_graphic()));
            assert_eq!((example.prompt[0], *example.prompt.last().unwrap()), (task.tag(), b'='));
            assert_eq!(bytes.iter().filter(|&&byte| byte == b'=').count(), 1, "one separator");
            assert!(!example.answer.is_empty());
            longest = longest.max(bytes.len() + 2);
        }
    }
    assert!(config.longest_document() <= 128, "two documents of any kind fit in a row of the shipped recipe");
    assert!(longest <= config.longest_document(), "{longest}");
}

#[test]
fn an_example_depends_on_seed_task_split_and_index() {
    let config = TasksConfig::default();
    let example = |seed, split, index| config.example(Task::Copy, seed, split, index).unwrap();
    assert_eq!(example(1, Split::Train, 2), example(1, Split::Train, 2));
    assert_ne!(example(1, Split::Train, 2), example(2, Split::Train, 2));
    assert_ne!(example(1, Split::Train, 2), example(1, Split::Train, 3));
    assert_ne!(example(1, Split::Train, 2), example(1, Split::HeldOut, 2));
    // Copy and reverse draw the same kind of sequence; their streams must still differ.
    let mut reverse = config.clone();
    (reverse.reverse.min_length, reverse.reverse.max_length) = (config.copy.min_length, config.copy.max_length);
    let reversed = reverse.example(Task::Reverse, 1, Split::Train, 2).unwrap();
    assert_ne!(example(1, Split::Train, 2).prompt[1..], reversed.prompt[1..]);
}

#[test]
fn scoring_is_exact() {
    let example = Example { prompt: b"Cab=".to_vec(), answer: b"ab".to_vec() };
    let (a, b) = (u32::from(b'a'), u32::from(b'b'));
    assert_eq!(example.prompt_tokens(), [BOS, u32::from(b'C'), a, b, u32::from(b'=')]);
    assert_eq!(example.answer_tokens(), [a, b, EOS]);
    assert!(example.is_answered_by(&[a, b, EOS]));
    assert!(example.is_answered_by(&[a, b, EOS, a]));
    for wrong in [&[a, b][..], &[a, b, a, EOS], &[a, EOS], &[b, a, EOS], &[EOS], &[], &[a, b, PAD]] {
        assert!(!example.is_answered_by(wrong), "{wrong:?}");
    }
    let examples = vec![example; 4];
    let generated = [vec![a, b, EOS], vec![a], vec![a, b, EOS, EOS], vec![]];
    assert_eq!(exact_match(&examples, &generated).unwrap(), 0.5);
    assert!(matches!(exact_match(&examples, &generated[..3]), Err(Error::Contract { .. })));
    assert!(exact_match(&[], &[]).is_err());
}

#[test]
fn the_held_out_set_is_fixed_distinct_and_of_active_tasks() {
    let mut config = TasksConfig::default();
    config.sort.weight = 0.0;
    let sets = held_out(&config, 4, 100).unwrap();
    assert_eq!(sets, held_out(&config, 4, 100).unwrap());
    assert_ne!(sets, held_out(&config, 5, 100).unwrap());
    let names: Vec<&str> = sets.iter().map(|set| set.0).collect();
    assert_eq!(names, ["copy", "reverse", "modular_addition", "recall", "brackets", "counting", "induction"]);
    for (name, examples) in &sets {
        let distinct: HashSet<_> = examples.iter().map(|example| &example.prompt).collect();
        assert_eq!((examples.len(), distinct.len()), (100, 100), "{name}");
    }
    // More than there are: all of them.
    let few = held_out(&small(), 4, 1000).unwrap();
    let sums = &few.iter().find(|set| set.0 == "modular_addition").unwrap().1;
    assert!((2..=16).contains(&sums.len()));
}

#[test]
fn difficulties_out_of_range_name_the_key() {
    for (toml, expected) in [
        ("copy.max_length = 0", "copy.max_length: found 0, expected 1 to 256"),
        ("copy = { min_length = 5, max_length = 4 }", "copy.min_length: found 5, expected 1 to 4"),
        ("reverse.alphabet = 27", "reverse.alphabet: found 27, expected 1 to 26"),
        ("sort.alphabet = 0", "sort.alphabet: found 0, expected 1 to 36"),
        ("modular_addition.modulus = 0", "modular_addition.modulus: found 0, expected 1 to 1000"),
        ("modular_addition.terms = 1", "modular_addition.terms: found 1, expected 2 to 8"),
        ("recall.keys = 5", "recall.max_pairs: found 13, expected 1 to 5"),
        ("recall.queries = 5", "recall.queries: found 5, expected 1 to 4"),
        ("recall.values = 11", "recall.values: found 11, expected 1 to 10"),
        ("brackets.kinds = 5", "brackets.kinds: found 5, expected 1 to 4"),
        ("brackets.max_depth = 0", "brackets.max_depth: found 0, expected 1 to 128"),
        ("counting.alphabet = 0", "counting.alphabet: found 0, expected 1 to 26"),
        ("induction.continuation = 0", "induction.continuation: found 0, expected 1 to 128"),
        ("sort.weight = -1", "sort.weight: found -1, expected a finite number, 0 or above"),
        ("sort.weight = nan", "sort.weight: found NaN, expected a finite number, 0 or above"),
    ] {
        let config: TasksConfig = toml::from_str(toml).unwrap();
        assert_eq!(TaskSource::new(config, Split::Train).err().unwrap().to_string(), expected);
    }
    let mut none = TasksConfig::default();
    let weights = [
        &mut none.copy.weight,
        &mut none.reverse.weight,
        &mut none.sort.weight,
        &mut none.modular_addition.weight,
        &mut none.recall.weight,
        &mut none.brackets.weight,
        &mut none.counting.weight,
        &mut none.induction.weight,
    ];
    weights.into_iter().for_each(|weight| *weight = 0.0);
    assert_eq!(none.check().unwrap_err().to_string(), "found only weights of 0, expected one above 0");
    none.copy.weight = 0.1;
    none.check().unwrap();
}
