//! placeholder
use super::*;
pub(crate) struct Codex;
impl Codex {
    pub(crate) fn new(_: Start) -> Self {
        Self
    }
}
pub(crate) fn launch(_: &Start) -> crate::Launch {
    crate::Launch::default()
}
impl Driver for Codex {
    fn abilities(&self) -> Abilities {
        Abilities {
            steers: false,
            resumes: false,
            shares_process: false,
            refuses_with_message: false,
            says_cost: false,
        }
    }
    fn begin(&mut self) -> Output {
        Output::default()
    }
    fn line(&mut self, _: &Line) -> Output {
        Output::default()
    }
    fn command(&mut self, _: Command) -> Result<Output, Refused> {
        Ok(Output::default())
    }
    fn exited(&mut self, _: &Exit) -> Output {
        Output::default()
    }
}
