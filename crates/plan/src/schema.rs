//! The JSON Schema of plans, for editors.

/// The text of the schema.
pub const SCHEMA: &str = include_str!("plan.schema.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::file::parse;
    use super::*;

    /// The fields that the parser accepts at a place, from its own error about an unknown one.
    fn accepted(text: &str) -> BTreeSet<String> {
        let error = parse(text, "it").unwrap_err().to_string();
        let listed = error.split_once("expected one of ").map(|(_, list)| list).unwrap();
        let listed = listed.split_once(" at ").map_or(listed, |(list, _)| list);
        let names: BTreeSet<String> = listed.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert!(names.len() > 5, "{error}");
        names
    }

    #[test]
    fn the_schema_has_the_fields_that_plans_have() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let in_schema = |pointer: &str| -> BTreeSet<String> {
            schema.pointer(pointer).unwrap().as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(in_schema("/properties"), accepted("{nothing: 1}"));
        assert_eq!(in_schema("/properties/defaults/properties"), accepted("{tasks: [], defaults: {nothing: 1}}"));
        let mut task = accepted("{tasks: [{nothing: 1}]}");
        task.remove("taskKey");
        assert_eq!(in_schema("/$defs/task/properties"), task);
    }

    #[test]
    fn a_plan_may_name_the_schema() {
        assert!(parse("{\"$schema\": plan.schema.json, tasks: [{prompt: x}]}", "it").is_ok());
    }
}
