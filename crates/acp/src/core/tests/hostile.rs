//! Whatever an editor sends: each request gets one answer at most, and nothing grows without bounds.

use proptest::prelude::*;

use super::*;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        prop_oneof![Just(SESSION), Just("plan"), Just("large"), Just("selected"), Just("yes"), Just("/")]
            .prop_map(Value::from),
    ];
    let names = prop_oneof![
        Just("sessionId"),
        Just("cwd"),
        Just("prompt"),
        Just("modeId"),
        Just("configId"),
        Just("value"),
        Just("type"),
        Just("text"),
        Just("outcome"),
        Just("optionId"),
        Just("requestId"),
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        let fields = proptest::collection::vec((names.clone().prop_map(str::to_owned), inner.clone()), 0..6);
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            fields.prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn line() -> impl Strategy<Value = String> {
    let methods = prop_oneof![
        Just("initialize"),
        Just("authenticate"),
        Just("session/new"),
        Just("session/load"),
        Just("session/resume"),
        Just("session/list"),
        Just("session/prompt"),
        Just("session/cancel"),
        Just("session/set_mode"),
        Just("session/set_model"),
        Just("session/set_config_option"),
        Just("session/close"),
        Just("$/cancel_request"),
        Just("session/other"),
    ];
    let prompt = json!({"sessionId": SESSION, "prompt": [{"type": "text", "text": "x"}]});
    let params =
        prop_oneof![3 => value(), 1 => Just(prompt), 1 => Just(json!({"sessionId": SESSION, "modeId": "plan"}))];
    prop_oneof![
        1 => "\\PC{0,30}",
        1 => value().prop_map(|value| value.to_string()),
        2 => (0u64..9, value()).prop_map(|(id, result)| json!({"id": id, "result": result}).to_string()),
        6 => (methods, params).prop_map(|(method, params)| json!({"method": method, "params": params}).to_string()),
    ]
}

proptest! {
    #[test]
    fn a_request_gets_one_answer_at_most(lines in proptest::collection::vec((line(), any::<bool>(), 0u64..40), 0..40)) {
        let mut editor = Editor::open(&json!({"elicitation": {"form": {}}}));
        editor.host(permission("r1"));
        editor.calls();
        let mut requests = 0;
        for (number, (line, is_request, seconds)) in lines.into_iter().enumerate() {
            let message = serde_json::from_str(&line).ok().and_then(|message: Value| message.as_object().cloned());
            let mut text = line;
            if let Some(mut message) = message.filter(|message| is_request && message.contains_key("method")) {
                message.insert("id".to_owned(), json!(1_000 + number));
                text = Value::Object(message).to_string();
                requests += 1;
            }
            editor.line(&text);
            editor.now += Duration::from_secs(seconds);
            editor.core.tick(editor.now);
            editor.collect();
        }
        let ids: Vec<u64> = editor.written.iter().filter(|message| message.get("method").is_none())
            .filter_map(|message| message["id"].as_u64()).filter(|id| *id >= 1_000).collect();
        let once: std::collections::HashSet<&u64> = ids.iter().collect();
        prop_assert_eq!(once.len(), ids.len());
        prop_assert!(ids.len() <= requests);
    }
}
