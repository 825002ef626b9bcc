//! Members and parameters that a route does not know: refused where it is closed, named in the answer elsewhere.

use std::sync::Arc;

use ensemble_chassis::auth::FixedKeys;
use ensemble_chassis::{
    Access, Clock, HandlerResult, IdempotentJson, Json, KeySet, KeySource, Listeners, OptionalJson, Query, Routes,
    Running, Service, ServiceContext, StartError, Vars, Worker, get, post, start,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Order {
    max_uses: Option<u32>,
    #[serde(default)]
    steps: Vec<Step>,
    extra: Option<Value>,
    #[serde(alias = "note")]
    text: Option<String>,
}

#[derive(Default, Serialize, Deserialize, ToSchema)]
struct Step {
    retry: Option<Retry>,
}

#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Retry {
    max_attempts: Option<u32>,
}

#[derive(Deserialize, IntoParams)]
struct Page {
    limit: Option<u32>,
}

struct Orders;

async fn required(Json(order): Json<Order>) -> HandlerResult<Json<Order>> {
    Ok(Json(order))
}

async fn optional(OptionalJson(order): OptionalJson<Order>) -> HandlerResult<Json<Order>> {
    Ok(Json(order))
}

async fn once(IdempotentJson { body, .. }: IdempotentJson<Order>) -> HandlerResult<Json<Order>> {
    Ok(Json(body))
}

async fn list(Query(_): Query<Page>) -> HandlerResult<Json<Value>> {
    Ok(Json(json!([])))
}

async fn limit(Query(page): Query<Page>) -> HandlerResult<Json<Value>> {
    Ok(Json(json!({ "limit": page.limit })))
}

impl Service for Orders {
    const NAME: &'static str = "orders";
    const DEFAULT_PORT: u16 = 1;
    type Config = ();

    fn configure(_: &mut Vars) {}

    fn routes() -> Routes {
        let order = |path| post(path).access(Access::Public).response::<Order>(200);
        Routes::new()
            .row(order("/v1/open").body::<Order>().alias("note").handler(required))
            .row(order("/v1/closed").body::<Order>().alias("note").closed().handler(required))
            .row(order("/v1/optional").optional_body::<Order>().closed().handler(optional))
            .row(order("/v1/once").body::<Order>().idempotent().closed().handler(once))
            .row(get("/v1/open").access(Access::Public).query::<Page>().response::<Order>(200).handler(list))
            .row(
                get("/v1/both")
                    .access(Access::Public)
                    .query::<Page>()
                    .response::<Order>(200)
                    .also_by_post("limitByPost")
                    .handler(limit),
            )
            .row(get("/v1/closed").access(Access::Public).query::<Page>().response::<Order>(200).closed().handler(list))
    }

    async fn build((): (), _: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        Ok((Arc::new(Self), Vec::new()))
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::new(FixedKeys::new(KeySet::new([], [])))
    }
}

async fn orders() -> Running {
    let vars = [("INTERNAL_TOKEN", "x"), ("DRAIN_DELAY_MS", "0"), ("WORKERS", "1")];
    start::<Orders>(Vars::from_pairs(vars), Listeners::loopback().unwrap(), Clock::system()).await.unwrap()
}

/// Status, the header `Ignored-Members` and the body.
async fn call(at: &Running, method: &str, path: &str, body: &str) -> (u16, Option<String>, Value) {
    let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
    let request = reqwest::Client::new().request(method, format!("{}{path}", at.public_url()));
    let answer = request.header("content-type", "application/json").body(body.to_owned()).send().await.unwrap();
    let ignored = answer.headers().get("ignored-members").map(|value| value.to_str().unwrap().to_owned());
    (answer.status().as_u16(), ignored, answer.json().await.unwrap())
}

#[tokio::test]
async fn a_closed_route_refuses_what_it_does_not_know_and_names_what_was_meant() {
    let orders = orders().await;
    for (path, body, pointer, sentence) in [
        ("/v1/closed", r#"{"maxUse":1}"#, "/maxUse", "`maxUse` is not known here; did you mean `maxUses`?"),
        ("/v1/optional", r#"{"max_uses":1}"#, "/max_uses", "`max_uses` is not known here; did you mean `maxUses`?"),
        ("/v1/once", r#"{"MAXUSES":1}"#, "/MAXUSES", "`MAXUSES` is not known here; did you mean `maxUses`?"),
        ("/v1/closed", r#"{"whatever":1}"#, "/whatever", "`whatever` is not known here."),
        ("/v1/closed", r#"{"a/b~c":1}"#, "/a~1b~0c", "`a/b~c` is not known here."),
        (
            "/v1/closed",
            r#"{"steps":[{},{"retry":{"maxAttempt":1}}]}"#,
            "/steps/1/retry/maxAttempt",
            "`maxAttempt` is not known here; did you mean `maxAttempts`?",
        ),
    ] {
        let (status, ignored, problem) = call(&orders, "POST", path, body).await;
        assert_eq!((status, ignored), (400, None), "{body}: {problem}");
        assert_eq!(problem["errors"], json!([{ "pointer": pointer, "detail": sentence }]), "{body}");
    }
    for (method, path, query) in
        [("GET", "/v1/closed", "?limits"), ("POST", "/v1/optional", "?limit"), ("POST", "/v1/once", "?limit")]
    {
        let (status, _, problem) = call(&orders, method, &format!("{path}{query}=5"), "{}").await;
        assert_eq!((status, &problem["errors"][0]["pointer"]), (400, &json!(query)), "{path}: {problem}");
    }
    for body in [r#"{"maxUses":1,"extra":{"maxUse":{"x":[1]}},"note":"x"}"#, "{}"] {
        let (status, ignored, answer) = call(&orders, "POST", "/v1/closed", body).await;
        assert_eq!((status, ignored), (200, None), "{body}: {answer}");
    }
    assert_eq!(call(&orders, "GET", "/v1/closed?limit=5", "").await.0, 200);
    assert!(orders.stop().await);
}

#[tokio::test]
async fn a_list_is_no_object() {
    let orders = orders().await;
    for (body, pointer) in [
        (r#"{"steps":[[null]]}"#, "/steps/0"),
        (r#"{"steps":[{"retry":[1]}]}"#, "/steps/0/retry"),
        (r#"{"steps":[{"retry":[]},[null]]}"#, "/steps/0/retry"),
    ] {
        let (status, _, problem) = call(&orders, "POST", "/v1/open", body).await;
        let wrong = json!([{ "pointer": pointer, "detail": "must be an object" }]);
        assert_eq!((status, &problem["errors"]), (400, &wrong), "{body}: {problem}");
    }
    assert_eq!(call(&orders, "POST", "/v1/open", r#"{"extra":[[1]],"steps":[]}"#).await.0, 200);
    assert!(orders.stop().await);
}

#[tokio::test]
async fn a_route_that_also_takes_post_has_its_parameters_in_the_query_or_in_the_body() {
    let orders = orders().await;
    for (method, path, body) in [
        ("GET", "/v1/both?limit=5", ""),
        ("POST", "/v1/both?limit=5", ""),
        ("POST", "/v1/both", r#"{"limit":5}"#),
        ("POST", "/v1/both", r#"{"limit":"5"}"#),
        ("POST", "/v1/both?limit=5", r#"{"limit":null}"#),
    ] {
        let (status, ignored, answer) = call(&orders, method, path, body).await;
        assert_eq!((status, ignored, &answer["limit"]), (200, None, &json!(5)), "{method} {path} {body}: {answer}");
    }
    for (path, body, pointer) in [
        ("/v1/both", r#"{"limit":"x"}"#, "?limit"),
        ("/v1/both?limit=5", r#"{"limit":5}"#, "?limit"),
        ("/v1/both", r#"{"limit":[5]}"#, "/limit"),
    ] {
        let (status, _, problem) = call(&orders, "POST", path, body).await;
        assert_eq!((status, &problem["errors"][0]["pointer"]), (400, &json!(pointer)), "{path} {body}: {problem}");
    }
    let (_, ignored, answer) = call(&orders, "GET", "/v1/both", r#"{"limit":5}"#).await;
    assert_eq!((ignored, &answer["limit"]), (None, &Value::Null), "a body of GET is none");
    let (status, ignored, _) = call(&orders, "POST", "/v1/both", r#"{"limits":5}"#).await;
    assert_eq!((status, ignored.as_deref()), (200, Some("?limits")));
    assert!(orders.stop().await);
}

/// `null` may have been meant as "no limit", and no body as "the usual one".
#[tokio::test]
async fn null_is_no_body() {
    let orders = orders().await;
    assert_eq!(call(&orders, "POST", "/v1/optional", "").await.0, 200);
    assert_eq!(call(&orders, "POST", "/v1/optional", "null").await.0, 400);
    assert!(orders.stop().await);
}

#[tokio::test]
async fn an_open_route_names_what_it_ignores_also_when_it_fails() {
    let orders = orders().await;
    for (body, expected) in [
        (r#"{"maxUse":1,"steps":[{"again":true}]}"#, "maxUse, steps/0/again"),
        (r#"{"a, b\u000d\u000ac\u00e9":1}"#, "a%2C%20b%0D%0Ac%C3%A9"),
        (r#"{"":1}"#, r#""""#),
        (
            r#"{"steps":[{"a":1},{"a":1},{"a":1},{"a":1},{"a":1},{"a":1},{"a":1},{"a":1},{"a":1},{"a":1},{"a":1}]}"#,
            "steps/0/a, steps/1/a, steps/2/a, steps/3/a, steps/4/a, steps/5/a, steps/6/a, steps/7/a, steps/8/a, steps/9/a",
        ),
    ] {
        let (status, ignored, answer) = call(&orders, "POST", "/v1/open", body).await;
        assert_eq!((status, ignored.as_deref()), (200, Some(expected)), "{body}: {answer}");
    }
    let (status, ignored, _) = call(&orders, "POST", "/v1/open?limit=1", r#"{"maxUse":1}"#).await;
    assert_eq!((status, ignored.as_deref()), (200, Some("?limit, maxUse")));
    let (status, ignored, _) = call(&orders, "GET", "/v1/open?limits=1", "").await;
    assert_eq!((status, ignored.as_deref()), (200, Some("?limits")));
    let (status, ignored, _) = call(&orders, "GET", "/v1/open?limits=1&limit=x", "").await;
    assert_eq!((status, ignored.as_deref()), (400, Some("?limits")));
    let (status, ignored, _) = call(&orders, "POST", "/v1/open", r#"{"maxUses":1,"extra":{"maxUse":1}}"#).await;
    assert_eq!((status, ignored), (200, None));
    assert!(orders.stop().await);
}
