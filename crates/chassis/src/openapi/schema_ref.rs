//! The schemas that the rows of a route table name.

use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A schema, its name and the schemas that it refers to.
#[derive(Clone)]
pub struct SchemaRef {
    pub name: String,
    pub schemas: Vec<(String, RefOr<Schema>)>,
}

impl SchemaRef {
    pub fn of<T: ToSchema + PartialSchema>() -> Self {
        let mut schemas = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut schemas);
        Self { name: T::name().into_owned(), schemas }
    }

    /// Of events that are tagged with `event`: one of what `data` has. Each says its event.
    pub(crate) fn of_data(mut self) -> Self {
        for (name, schema) in &mut self.schemas {
            if *name == self.name
                && let RefOr::T(Schema::OneOf(events)) = schema
            {
                events.items = events.items.iter().filter_map(data_of_event).collect();
            }
        }
        self
    }
}

fn data_of_event(event: &RefOr<Schema>) -> Option<RefOr<Schema>> {
    let RefOr::T(Schema::Object(event)) = event else { return None };
    let RefOr::T(Schema::Object(name)) = event.properties.get("event")? else { return None };
    let name = name.enum_values.as_ref()?.first()?.as_str()?;
    let words = event.description.as_ref().map_or_else(String::new, |words| format!(" {words}"));
    let mut data = event.properties.get("data")?.clone();
    if let RefOr::Ref(data) = &mut data {
        data.description = format!("The event `{name}`.{words}");
    }
    Some(data)
}
