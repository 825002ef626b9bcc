//! What is compared with what, and which files are read.

use super::*;

fn alone(ours: f64) -> Figure {
    Figure { ours, unit: "ms".to_owned(), ratio: None }
}

fn with_ratio(ours: f64, ratio: f64) -> Figure {
    Figure { ours, unit: "msg/s".to_owned(), ratio: Some(ratio) }
}

fn figures(all: &[(&str, &Figure)]) -> Figures {
    let mut figures = Figures::default();
    for (name, figure) in all {
        figures.add(name, (*figure).clone()).unwrap();
    }
    figures
}

fn is_slower(before: &Figure, now: &Figure, better: Better) -> bool {
    match figures(&[("row", before)]).change("row", now, better) {
        Change::By { is_slower, .. } => is_slower,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_figure_is_slower_when_it_got_worse_by_more_than_15_percent() {
    for (now, higher_is_better, lower_is_better) in
        [(84.0, true, false), (86.0, false, false), (100.0, false, false), (114.0, false, false), (116.0, false, true)]
    {
        let (before, now) = (alone(100.0), alone(now));
        assert_eq!(is_slower(&before, &now, Better::Higher), higher_is_better, "{now:?}");
        assert_eq!(is_slower(&before, &now, Better::Lower), lower_is_better, "{now:?}");
    }
}

#[test]
fn the_ratio_is_compared_where_there_is_one() {
    // The machine is half as fast: the figure is halved, and the ratio is the same.
    assert!(!is_slower(&with_ratio(20_000.0, 8.0), &with_ratio(10_000.0, 8.0), Better::Higher));
    assert!(is_slower(&with_ratio(20_000.0, 8.0), &with_ratio(20_000.0, 6.0), Better::Higher));
}

#[test]
fn a_figure_that_was_not_there_is_new() {
    let before = figures(&[("row", &alone(1.0)), ("other", &with_ratio(1.0, 1.0))]);
    assert_eq!(before.change("another row", &alone(1.0), Better::Lower), Change::New);
    // It was measured in another way.
    assert_eq!(before.change("row", &with_ratio(1.0, 1.0), Better::Lower), Change::New);
    assert_eq!(before.change("other", &Figure { ratio: None, ..with_ratio(1.0, 1.0) }, Better::Lower), Change::New);
}

#[test]
fn nothing_is_a_percentage_of_0() {
    let before = figures(&[("row", &alone(0.0))]);
    assert_eq!(before.change("row", &alone(0.0), Better::Lower), Change::By { percent: 0.0, is_slower: false });
    assert_eq!(before.change("row", &alone(3.0), Better::Lower), Change::FromNothing);
}

#[test]
fn changes_read_as_people_say_them() {
    let before = figures(&[("row", &alone(100.0))]);
    let of = |now: f64| before.change("row", &alone(now), Better::Lower).to_string();
    assert_eq!([of(104.0), of(77.0), of(123.4)], ["+4 %", "-23 %", "+23 %, *slower*"]);
    assert_eq!(before.change("none", &alone(1.0), Better::Lower).to_string(), "new");
}

#[test]
fn the_file_is_sorted_and_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("last.json");
    assert_eq!(Figures::read(&file).unwrap(), None);
    let written = || figures(&[("runs", &alone(2.25)), ("append", &with_ratio(20_254.0, 8.418_234))]);
    written().write(&file, false).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let expected = json!({
        "append": { "ours": 20_254.0, "ratio": 8.418, "unit": "msg/s" }, "runs": { "ours": 2.25, "unit": "ms" },
    });
    assert_eq!(value, expected);
    assert!(text.find("append").unwrap() < text.find("runs").unwrap(), "{text}");
    assert_eq!(
        Figures::read(&file).unwrap(),
        Some(figures(&[("append", &with_ratio(20_254.0, 8.418)), ("runs", &alone(2.25))]))
    );

    // Some rows by themselves, and then all of them.
    figures(&[("runs", &alone(3.0))]).write(&file, true).unwrap();
    let both = Figures::read(&file).unwrap().unwrap();
    assert_eq!((both.get("runs"), both.get("append").is_some()), (Some(&alone(3.0)), true));
    figures(&[("runs", &alone(3.0))]).write(&file, false).unwrap();
    assert_eq!(Figures::read(&file).unwrap().unwrap().get("append"), None);
}

#[test]
fn a_file_without_figures_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("last.json");
    for text in ["", "{", "[]", r#"{"row": 3}"#, r#"{"row": {"ours": "3", "unit": "ms"}}"#, r#"{"row": {"ours": 3}}"#] {
        std::fs::write(&file, text).unwrap();
        let error = format!("{:#}", Figures::read(&file).unwrap_err());
        assert!(error.contains("last.json") && error.contains("make bench-last"), "{text}: {error}");
    }
    // A folder is not a missing file.
    let error = format!("{:#}", Figures::read(folder.path()).unwrap_err());
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn names_are_unique_and_figures_are_numbers() {
    let mut all = figures(&[("row", &alone(1.0))]);
    let twice = all.add("row", alone(2.0)).unwrap_err().to_string();
    assert!(twice.contains("two figures"), "{twice}");
    let none = all.add("other", alone(f64::NAN)).unwrap_err().to_string();
    assert!(none.contains("not measured"), "{none}");
}
