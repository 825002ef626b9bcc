//! Adds to derived schemas what callers have to know: the range of numbers, and that parameters are never `null`.

use serde_json::{Value, json};
use utoipa::Number;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::schema::{ArrayItems, SchemaType};
use utoipa::openapi::{KnownFormat, Object, RefOr, Schema, SchemaFormat, Type};

/// Ids and tokens: opaque text that needs no percent-encoding.
const SEGMENT: &str = "^[A-Za-z0-9_-]{1,64}$";

/// A parameter of a path.
pub(super) fn segment(name: &str) -> Value {
    json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "pattern": SEGMENT } })
}

/// The schema of a query parameter. An optional field would allow `null`, which a query cannot express. No cursor is
/// empty.
pub(super) fn parameter(mut parameter: Parameter) -> Parameter {
    parameter.schema = parameter.schema.map(|mut schema| {
        bound(&mut schema);
        let mut schema = without_null(schema);
        if parameter.name == "cursor"
            && let RefOr::T(Schema::Object(cursor)) = &mut schema
        {
            cursor.min_length.get_or_insert(1);
        }
        schema
    });
    parameter
}

/// Gives the numbers of a request body the range of the types that they are read into.
pub(super) fn bound(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => {
            bound_number(object);
            object.properties.values_mut().for_each(bound);
        }
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                bound(items);
            }
        }
        Schema::OneOf(of) => of.items.iter_mut().for_each(bound),
        Schema::AllOf(of) => of.items.iter_mut().for_each(bound),
        Schema::AnyOf(of) => of.items.iter_mut().for_each(bound),
        _ => {}
    }
}

fn bound_number(object: &mut Object) {
    // Those of the format, which is signed. That a count is not negative stands in its schema.
    let (lowest, highest) = match &object.format {
        Some(SchemaFormat::KnownFormat(KnownFormat::Int32)) => (i32::MIN as isize, i32::MAX as usize),
        Some(SchemaFormat::KnownFormat(KnownFormat::Int64)) => (isize::MIN, isize::MAX as usize),
        _ => return,
    };
    object.maximum.get_or_insert(Number::UInt(highest));
    object.minimum.get_or_insert(Number::Int(lowest));
}

fn without_null(schema: RefOr<Schema>) -> RefOr<Schema> {
    match schema {
        RefOr::T(Schema::Object(mut object)) => {
            object.schema_type = some_type(object.schema_type);
            object.into()
        }
        RefOr::T(Schema::OneOf(mut of)) => {
            of.items.retain(|item| !is_null(item));
            if of.items.len() == 1 { of.items.remove(0) } else { RefOr::T(Schema::OneOf(of)) }
        }
        other => other,
    }
}

fn some_type(schema_type: SchemaType) -> SchemaType {
    match schema_type {
        SchemaType::Array(mut types) => {
            types.retain(|one| *one != Type::Null);
            match types.as_slice() {
                [only] => SchemaType::Type(only.clone()),
                _ => SchemaType::Array(types),
            }
        }
        other => other,
    }
}

fn is_null(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null))
}
