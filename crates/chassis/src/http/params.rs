//! Path parameters and the query of a request.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::{Ready, ready};

use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload};
use ensemble_types::problem::Problem;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{ApiError, OptionalJson};

/// Path parameters. A malformed one is 404, as one that does not exist.
pub struct Path<T>(pub T);

/// The query. A wrong parameter is 400 with its name as `?name`.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned + 'static> FromRequest for Path<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let found = actix_web::web::Path::<T>::from_request(request, payload).into_inner();
        ready(found.map(|path| Self(path.into_inner())).map_err(|_| Problem::not_found().into()))
    }
}

impl<T: DeserializeOwned + 'static> FromRequest for Query<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(parse(&parameters_of(request)).map(Self).map_err(ApiError::from))
    }
}

/// The parameters of the query, as members of a body.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it names a schema")]
pub(crate) struct StreamParameters(BTreeMap<String, Value>);

/// The query of a request whose body had parameters, too.
struct WithBody(String);

/// The query, and the parameters of the body where the route takes them there.
pub(super) fn parameters_of(request: &HttpRequest) -> Cow<'_, str> {
    match request.extensions().get::<WithBody>() {
        Some(WithBody(all)) => Cow::Owned(all.clone()),
        None => Cow::Borrowed(request.query_string()),
    }
}

/// Reads a body whose members are parameters, as texts, numbers or booleans. `null` is none.
pub(crate) async fn take_parameters(request: &HttpRequest, payload: &mut Payload) -> Result<(), Problem> {
    let members = OptionalJson::<Map<String, Value>>::from_request(request, payload).await;
    let OptionalJson(members) = members.map_err(ApiError::into_inner)?;
    let mut all = form_urlencoded::Serializer::new(request.query_string().to_owned());
    for (name, value) in members {
        match value {
            Value::Null => {}
            Value::String(text) => drop(all.append_pair(&name, &text)),
            Value::Number(_) | Value::Bool(_) => drop(all.append_pair(&name, &value.to_string())),
            Value::Array(_) | Value::Object(_) => {
                let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
                return Err(Problem::field(pointer, "must be a text, a number or a boolean"));
            }
        }
    }
    request.extensions_mut().insert(WithBody(all.finish()));
    Ok(())
}

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    if query.contains("%00") {
        return Err(Problem::field("?", "must not contain U+0000"));
    }
    let pairs = serde_urlencoded::Deserializer::new(form_pairs(query));
    serde_path_to_error::deserialize(pairs).map_err(|error| {
        let path = error.path().to_string();
        let detail = error.into_inner().to_string();
        // When an error of serde concerns the whole query, its text has the parameter in backquotes.
        let name = if path == "." || path == "?" { detail.split('`').nth(1).unwrap_or("").to_owned() } else { path };
        Problem::field(format!("?{name}"), detail)
    })
}

fn form_pairs(query: &str) -> form_urlencoded::Parse<'_> {
    form_urlencoded::parse(query.as_bytes())
}

#[cfg(test)]
mod tests {
    use ensemble_types::page::Limit;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Page {
        #[serde(default)]
        limit: Limit<50, 500>,
        after: Option<u64>,
    }

    #[test]
    fn a_bad_parameter_is_named() {
        for (query, name) in
            [("limit=0", "?limit"), ("limit=-1", "?limit"), ("limit=501", "?limit"), ("after=x", "?after")]
        {
            let problem = parse::<Page>(query).unwrap_err();
            assert_eq!(problem.errors[0].pointer, name, "{query}: {problem}");
        }
        let twice = parse::<Page>("after=1&after=2").unwrap_err();
        assert_eq!(twice.errors[0].pointer, "?after");
    }

    #[test]
    fn unknown_parameters_are_ignored_and_defaults_hold() {
        let page: Page = parse("else=1&after=7").unwrap();
        assert_eq!((page.limit.get(), page.after), (50, Some(7)));
    }
}
