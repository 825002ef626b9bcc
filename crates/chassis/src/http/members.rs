//! The members and query parameters that a request may have, from the schema of its route.
//!
//! A member that is not known is never dropped in silence. Where it may have been meant as a limit, a right or an expiry, the
//! route is closed and refuses it. Elsewhere the answer names it in `Ignored-Members`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::{HttpMessage, HttpRequest};
use ensemble_types::problem::Problem;
use utoipa::openapi::path::ParameterIn;
use utoipa::openapi::schema::{AdditionalProperties, ArrayItems};
use utoipa::openapi::{RefOr, Schema};

use super::params::parameters_of;
use crate::routes::RowDoc;

/// The members that were ignored, as JSON Pointers without the first slash, or `?name` for query parameters. What is not visible ASCII,
/// and a comma, is percent-encoded.
pub const IGNORED_MEMBERS: HeaderName = HeaderName::from_static("ignored-members");

/// The most unknown members that are named.
const MOST_NAMED: usize = 10;
/// A longer name is cut.
const LONGEST_NAME: usize = 64;
/// No request nests known members deeper than this.
const DEEPEST: usize = 16;

/// What a route knows of its requests.
#[derive(Default)]
pub(crate) struct Known {
    /// Whether what is not known is refused.
    closed: bool,
    body: Members,
    parameters: Members,
}

impl Known {
    pub(crate) fn of_row(doc: &RowDoc, closed: bool) -> Self {
        let body = doc.body.as_ref().map(|body| {
            let schemas = body.schemas.iter().map(|(name, schema)| (name.as_str(), schema)).collect();
            let mut members = schemas_named(&body.name, &schemas, DEEPEST);
            members.named.extend(doc.aliases.iter().map(|alias| ((*alias).to_owned(), Members::free())));
            members
        });
        let of_query = doc.parameters.iter().filter(|parameter| parameter.parameter_in == ParameterIn::Query);
        let parameters = of_query.map(|parameter| (parameter.name.clone(), Members::free()));
        let parameters = Members { named: parameters.collect(), ..Members::default() };
        Self { closed, body: body.unwrap_or_else(Members::free), parameters }
    }

    /// What the request's route knows. Outside of a route everything is known.
    pub(super) fn of(request: &HttpRequest) -> Arc<Self> {
        request
            .extensions()
            .get::<Arc<Self>>()
            .cloned()
            .unwrap_or_else(|| Arc::new(Self { closed: false, body: Members::free(), parameters: Members::free() }))
    }

    pub(crate) fn body(&self) -> &Members {
        &self.body
    }

    /// Refuses members that are not known where the route is closed.
    pub(super) fn refuse(&self, unknown: &[Unknown]) -> Result<(), Problem> {
        if !self.closed || unknown.is_empty() {
            return Ok(());
        }
        Err(unknown
            .iter()
            .fold(Problem::refused_fields(), |problem, member| problem.with_field(&member.pointer, member.sentence())))
    }

    /// Looks at the query: 400 where the route is closed, else they are named in the answer.
    pub(crate) fn check_query(&self, request: &HttpRequest) -> Result<(), Problem> {
        let query = parameters_of(request);
        if self.parameters.free || query.is_empty() {
            return Ok(());
        }
        let found = Found::default();
        for (name, _) in form_urlencoded::parse(query.as_bytes()) {
            if !self.parameters.named.contains_key(name.as_ref()) {
                found.add(&format!("?{}", cut(&name)), &name, &self.parameters);
            }
        }
        let unknown = found.into_inner();
        self.refuse(&unknown)?;
        remember(request, &unknown);
        Ok(())
    }
}

/// A member that the schema does not have.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown {
    /// A JSON Pointer, or `?name`.
    pub pointer: String,
    name: String,
    /// The known name that is nearest.
    meant: Option<String>,
}

impl Unknown {
    fn sentence(&self) -> String {
        match &self.meant {
            Some(meant) => format!("`{}` is not known here; did you mean `{meant}`?", self.name),
            None => format!("`{}` is not known here.", self.name),
        }
    }
}

/// The members that a value may have. By default it has none.
#[derive(Clone, Debug, Default)]
pub struct Members {
    named: BTreeMap<String, Members>,
    items: Option<Box<Members>>,
    /// Nothing is said about its members, or it is no object.
    free: bool,
}

impl Members {
    /// Of a value about which nothing is said.
    pub const fn free() -> Self {
        Self { named: BTreeMap::new(), items: None, free: true }
    }

    /// Whether it is an object, so that a list in its place is wrong.
    pub(super) fn is_object(&self) -> bool {
        !self.named.is_empty() && self.items.is_none()
    }

    /// What is known of each item of a list.
    pub(super) fn item(&self) -> &Self {
        const FREE: &Members = &Members::free();
        self.items.as_deref().unwrap_or(FREE)
    }

    /// What is known of a member, or `None` for one that is not known.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        const FREE: &Members = &Members::free();
        self.named.get(name).or(if self.free { Some(FREE) } else { None })
    }

    /// What one of several schemas allows is known.
    fn or(mut self, other: Self) -> Self {
        for (name, members) in other.named {
            let known = self.named.remove(&name).unwrap_or_default();
            self.named.insert(name, known.or(members));
        }
        self.items = match (self.items, other.items) {
            (Some(one), Some(two)) => Some(Box::new(one.or(*two))),
            (one, two) => one.or(two),
        };
        self.free |= other.free;
        self
    }

    /// The pointers of all objects whose members are known, with one of their members.
    #[doc(hidden)]
    pub fn objects(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        if !self.free && !self.named.is_empty() {
            found.push(Vec::new());
        }
        let items = self.items.iter().map(|items| ("0".to_owned(), items.as_ref()));
        for (name, members) in self.named.iter().map(|(name, members)| (name.clone(), members)).chain(items) {
            found.extend(members.objects().into_iter().map(|mut path| {
                path.insert(0, name.clone());
                path
            }));
        }
        found
    }
}

type Schemas<'a> = BTreeMap<&'a str, &'a RefOr<Schema>>;

fn schemas_named(name: &str, all: &Schemas<'_>, depth: usize) -> Members {
    all.get(name).map_or_else(Members::free, |schema| members_of(schema, all, depth))
}

fn members_of(schema: &RefOr<Schema>, all: &Schemas<'_>, depth: usize) -> Members {
    if depth == 0 {
        return Members::free();
    }
    let schema = match schema {
        RefOr::Ref(to) => {
            let name = to.ref_location.rsplit('/').next().unwrap_or_default();
            return schemas_named(name, all, depth - 1);
        }
        RefOr::T(schema) => schema,
    };
    match schema {
        Schema::Object(object) => {
            let open =
                !matches!(object.additional_properties.as_deref(), None | Some(AdditionalProperties::FreeForm(false)));
            let named = object.properties.iter().map(|(name, of)| (name.clone(), members_of(of, all, depth - 1)));
            Members { named: named.collect(), items: None, free: open || object.properties.is_empty() }
        }
        Schema::Array(array) => {
            let items = match &array.items {
                ArrayItems::RefOrSchema(items) => members_of(items, all, depth - 1),
                ArrayItems::False => Members::free(),
            };
            // A list has no members of its own, so an object in its place is left to its reader.
            Members { named: BTreeMap::new(), items: Some(Box::new(items)), free: true }
        }
        Schema::OneOf(of) => any_of(&of.items, all, depth),
        Schema::AnyOf(of) => any_of(&of.items, all, depth),
        Schema::AllOf(of) => any_of(&of.items, all, depth),
        _ => Members::free(),
    }
}

/// Text and numbers among the schemas say nothing about members.
fn any_of(schemas: &[RefOr<Schema>], all: &Schemas<'_>, depth: usize) -> Members {
    let each: Vec<Members> = schemas.iter().map(|schema| members_of(schema, all, depth)).collect();
    if each.iter().all(|members| members.named.is_empty() && members.items.is_none()) {
        return Members::free();
    }
    let with_members = each.into_iter().filter(|members| !members.named.is_empty() || members.items.is_some());
    with_members.reduce(Members::or).unwrap_or_else(Members::free)
}

/// The unknown members that one reading has found.
#[derive(Default)]
pub(super) struct Found(RefCell<Vec<Unknown>>);

impl Found {
    pub(super) fn add(&self, pointer: &str, name: &str, known: &Members) {
        let mut all = self.0.borrow_mut();
        if all.len() < MOST_NAMED {
            let name = cut(name);
            let meant = nearest(&name, known.named.keys());
            all.push(Unknown { pointer: pointer.to_owned(), name, meant });
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.borrow().len() >= MOST_NAMED
    }

    pub(super) fn into_inner(self) -> Vec<Unknown> {
        self.0.into_inner()
    }
}

pub(super) fn cut(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Option<String> {
    let likeness = |known: &String| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    let (best, likeness) = known.map(|known| (known, likeness(known))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (likeness > 0.85).then(|| best.clone())
}

/// The names that the answer to a request has in `Ignored-Members`.
struct Ignored(Vec<String>);

/// A pointer in a list of a header: what is not visible, and a comma, is percent-encoded.
fn visible(pointer: &str) -> String {
    let name = pointer.strip_prefix('/').unwrap_or(pointer);
    let coded = name.bytes().map(|byte| match byte {
        b',' | b'%' => format!("%{byte:02X}"),
        byte if byte.is_ascii_graphic() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    if name.is_empty() { "\"\"".to_owned() } else { coded.collect() }
}

/// Names these members in the answer.
pub(super) fn remember(request: &HttpRequest, unknown: &[Unknown]) {
    if unknown.is_empty() {
        return;
    }
    let names = unknown.iter().map(|member| visible(&member.pointer));
    let mut extensions = request.extensions_mut();
    // The query has been looked at before the body.
    let of_query = extensions.remove::<Ignored>().map(|ignored| ignored.0).unwrap_or_default();
    extensions.insert(Ignored(of_query.into_iter().chain(names).collect()));
}

/// Adds `Ignored-Members` to the answer of a request of which something was ignored.
pub(crate) fn name_ignored(request: &HttpRequest, headers: &mut HeaderMap) {
    let extensions = request.extensions();
    let Some(ignored) = extensions.get::<Ignored>() else { return };
    let names: Vec<&str> =
        ignored.0.iter().map(String::as_str).filter(|name| !name.is_empty()).take(MOST_NAMED).collect();
    if let Ok(value) = HeaderValue::from_str(&names.join(", ")) {
        headers.insert(IGNORED_MEMBERS, value);
    }
}
