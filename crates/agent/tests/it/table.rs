//! The table of docs/TRANSCRIPT.md: what an agent said, and how the turn ended.

use ensemble_agent::{Event, Kind, Line};
use serde_json::{Value, json};

use crate::hostile::in_a_turn;

/// The rows: the agent, its lines, the stop reason and the code.
fn rows() -> Vec<(String, Vec<Value>, String, String)> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/TRANSCRIPT.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = text.split("| Agent | What it said | stopReason | code |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let words = |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
        let said = words(cells[1]).iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        (cells[0].to_owned(), said, words(cells[2]).concat(), words(cells.get(3).unwrap_or(&"")).concat())
    })
    .collect()
}

#[test]
fn a_turn_ends_as_the_document_says() {
    let rows = rows();
    assert!(rows.len() > 35, "{} rows", rows.len());
    for (agent, said, stop, code) in rows {
        let kind = match agent.as_str() {
            "claude" => Kind::Claude,
            "codex" => Kind::Codex,
            _ => Kind::Gemini,
        };
        let (mut driver, _) = in_a_turn(kind);
        let mut events = Vec::new();
        for mut line in said.clone() {
            match kind {
                Kind::Claude => {}
                Kind::Codex => {
                    line["id"] = json!("t");
                    line = json!({"method": "turn/completed", "params": {"threadId": "s", "turn": line}});
                }
                _ => line["id"] = json!(4),
            }
            events.extend(driver.line(&Line::Text(line.to_string())).events);
        }
        let found_stop = events.iter().find_map(|event| match event {
            Event::TurnEnded { stop, .. } => Some(stop.as_str().to_owned()),
            _ => None,
        });
        let found_code: Vec<&str> = events
            .iter()
            .filter_map(|event| match event {
                Event::Failure { code, .. } => Some(code.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!((found_stop.as_deref(), found_code.concat()), (Some(stop.as_str()), code), "{agent}: {said:?}");
    }
}
