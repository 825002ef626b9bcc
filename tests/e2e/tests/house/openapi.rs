//! The document that the edge serves is the one that the route tables make.

use ensemble_all_in_one::api;
use ensemble_e2e::House;
use ensemble_testkit::Backend;

#[test]
fn the_written_document_is_fresh() {
    let written = include_str!("../../../../docs/openapi.json");
    assert!(written == api::as_text().unwrap(), "docs/openapi.json is stale: run `make openapi`");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_edge_serves_the_document_and_a_page_to_try_it() {
    let house = House::open(Backend::Sqlite, &[]).await.unwrap();
    let (status, document) = house.call("", "GET", "/openapi.json", None).await.unwrap();
    assert_eq!((status, document["openapi"].as_str().unwrap().starts_with("3.1")), (200, true));
    assert!(document["paths"].as_object().unwrap().len() > 30);
    let page = house.http.get(format!("{}/docs/", house.url())).send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.headers().contains_key("content-security-policy"));
    let (status, version) = house.call("", "GET", "/v1/version", None).await.unwrap();
    assert_eq!(status, 200, "{version}");
    assert!(house.stack.stop().await);
}
