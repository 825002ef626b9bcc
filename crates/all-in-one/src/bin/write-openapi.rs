//! Prints the OpenAPI document; `make openapi` writes it to docs/openapi.json.

fn main() -> anyhow::Result<()> {
    print!("{}", ensemble_all_in_one::api::as_text()?);
    Ok(())
}
