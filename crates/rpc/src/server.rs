//! The server side: decodes a request, calls the method of a contract, encodes its result.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use ensemble_chassis::{RpcMount, RpcStatus};
use prost::Message;

use crate::RpcError;

/// Calls one method. Used by the generated `mount_…`.
pub fn mount<Q, A, F, Answering>(path: &'static str, method: F) -> RpcMount
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: Fn(Q) -> Answering + Clone + Send + Sync + 'static,
    Answering: Future<Output = Result<A, RpcError>> + Send,
{
    let call = Arc::new(move |body: Bytes| {
        let method = method.clone();
        let answering: futures_util::future::BoxFuture<'static, Result<Bytes, RpcStatus>> = Box::pin(async move {
            let request =
                Q::decode(body).map_err(|error| RpcError::Invalid(format!("the request is not readable: {error}")))?;
            Ok(method(request).await?.encode_to_vec().into())
        });
        answering
    });
    RpcMount { path: path.to_owned(), call }
}
