//! An Argo CD for tests of what watches it: a function answers for it, and its stream ends soon, so that everything is listed again.

use std::time::Duration;

use axum::http::{Method, StatusCode, Uri};
use axum::{Json, Router};
use serde_json::{Value, json};

/// Serves it; gives its address.
pub(crate) async fn argocd<A>(answer: A) -> String
where
    A: Fn(&Method, &Uri, &Value) -> Result<Value, StatusCode> + Clone + Send + Sync + 'static,
{
    let router = Router::new().fallback(move |method: Method, uri: Uri, body: String| async move {
        if uri.path().ends_with("/stream/applications") {
            tokio::time::sleep(Duration::from_millis(50)).await;
            return (StatusCode::OK, Json(json!({})));
        }
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        match answer(&method, &uri, &body) {
            Ok(answer) => (StatusCode::OK, Json(answer)),
            Err(code) => (code, Json(json!({"code": code.as_u16(), "message": "refused"}))),
        }
    });
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}
