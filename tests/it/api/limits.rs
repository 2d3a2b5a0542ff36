//! What the API refuses, and that it keeps nobody else from being served.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use serde_json::{Value, json};

use super::Stage;
use crate::support::{
    SOON,
    api::{Answer, Ask, TOKEN},
};

fn problem(answer: &Answer, status: u16) -> Value {
    let problem = answer.with(status);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
    for (field, is_right) in [
        ("type", problem["type"].as_str().is_some_and(|kind| kind.starts_with("urn:sexton:problem:"))),
        ("title", problem["title"].is_string()),
        ("status", problem["status"] == status),
        ("detail", problem["detail"].as_str().is_some_and(|detail| detail.len() > 10)),
        ("instance", problem["instance"].as_str().is_some_and(|path| path.starts_with("/api/v1"))),
    ] {
        assert!(is_right, "{field}: {problem}");
    }
    problem
}

#[tokio::test]
async fn whatever_is_wrong_is_a_problem_document_that_says_where() {
    let stage = Stage::with(1).await;
    let http = stage.http;
    let post = |body: Value| Ask::post("/dead-letters:retry", &body);
    let text = |content_type: &str, body: &str| {
        Ask::new("POST", "/dead-letters:retry").bearer(TOKEN).header("content-type", content_type).body(body)
    };
    let entry = format!("/dead-letters/orders/{}", stage.ids[0]);
    for (ask, status, place, detail) in [
        (Ask::get("/nothing"), 404, "", ""),
        (Ask::get("/dead-letters/nobody/1-0"), 404, "", ""),
        (Ask::get("/dead-letters/orders/1-0"), 404, "", ""),
        (Ask::get("/dead-letters/orders/%ff"), 404, "", ""),
        (Ask::get("/dead-letters/orders/x%2F1"), 404, "", ""),
        (Ask::get("/dead-letters?source=nobody"), 404, "", ""),
        (Ask::get("/operations/x:y"), 404, "", ""),
        (Ask::new("PUT", "/dead-letters"), 405, "", ""),
        (Ask::new("POST", &entry), 405, "", ""),
        (Ask::get("/dead-letters?limt=5"), 400, "limt", "did you mean \"limit\"?"),
        (Ask::get("/dead-letters?limit=1001"), 400, "limit", "1 to 1000"),
        (Ask::get("/dead-letters?after=orders/x"), 400, "after", "cursor"),
        (Ask::get("/dead-letters?error=("), 400, "error", "unclosed group"),
        (Ask::get("/dead-letters?error=(%5Cw%7B1000%7D)%7B1000%7D"), 400, "error", "size"),
        (Ask::get("/groups?older_than=old"), 400, "older_than", "90s, 24h or 7d"),
        (Ask::get("/audit?since=yesterday"), 400, "since", "2h"),
        (Ask::get(&format!("{entry}?x=1")), 400, "x", "no such parameter"),
        (Ask::new("DELETE", &format!("{entry}?note=a%0Ab")).bearer(TOKEN), 400, "note", "one line"),
        (post(json!({})), 400, "/filter", "all: true"),
        (post(json!({"filter": {"tsak": ["x"]}})), 400, "/filter/tsak", "unknown field"),
        (post(json!({"filter": {"reason": ["dead"]}})), 400, "/filter/reason", "max_attempts"),
        (post(json!({"all": true, "per_second": 0})), 400, "/per_second", "1 to 100000"),
        (post(json!({"all": true, "note": "x".repeat(501)})), 400, "/note", "500"),
        (Ask::post("/dead-letters:purge", &json!({"all": true})), 400, "/filter/older_than", "7d"),
        (text("application/json", "{\"all\": tru"), 400, "", "line 1 column"),
        (text("text/plain", "{}"), 415, "", ""),
        (text("application/json", &format!("{{\"note\": \"{}\"}}", "x".repeat(70_000))), 413, "", ""),
    ] {
        let answer = http.ask(ask.clone()).await;
        let told = problem(&answer, status);
        if !detail.is_empty() {
            let wrong = &told["errors"][0];
            let at = wrong["pointer"].as_str().or(wrong["parameter"].as_str());
            assert_eq!(at, Some(place), "{ask:?} {told}");
            assert!(wrong["detail"].as_str().unwrap().contains(detail), "{ask:?} {told}");
        }
    }
    let several = post(json!({"per_second": 0, "filter": {"group": ["x"]}}));
    assert_eq!(problem(&http.ask(several).await, 400)["errors"].as_array().unwrap().len(), 2);
    assert_eq!(stage.left().await, 1, "nothing was done");
}

#[tokio::test]
async fn methods_are_told_and_a_head_has_no_body() {
    let stage = Stage::with(1).await;
    let entry = format!("/dead-letters/orders/{}", stage.ids[0]);
    let options = stage.http.ask(Ask::new("OPTIONS", &entry)).await;
    assert_eq!(options.status, 204);
    let mut allowed: Vec<&str> = options.header("allow").unwrap().split(',').collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["DELETE", "GET", "HEAD"]);
    let refused = stage.http.ask(Ask::new("PATCH", &entry)).await;
    assert_eq!((refused.status, refused.header("allow").is_some()), (405, true));
    for (path, status) in [("/dead-letters", 200), ("/nothing", 404)] {
        let head = stage.http.ask(Ask::new("HEAD", path)).await;
        assert_eq!((head.status, head.body.as_str()), (status, ""), "{path}");
    }
    // Nobody's browser may read this for another site.
    let answer = stage.http.ask(Ask::get("/sources").header("origin", "https://evil.example")).await;
    assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control-")), "{answer:?}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn clients_that_hang_keep_neither_probes_nor_metrics_from_being_answered() {
    let stage = Stage::with(1).await;
    let half = Ask::new("POST", "/dead-letters:retry").bearer(TOKEN).header("content-type", "application/json");
    // More than may be served at once, each with a body that never comes.
    let hanging: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(stage.http.0).unwrap();
            let mut bytes = half.bytes();
            bytes.truncate(bytes.len() - 2);
            bytes.extend_from_slice(b"content-length: 10\r\n\r\n{");
            stream.write_all(&bytes).unwrap();
            stream
        })
        .collect();
    let (mut slow, mut busy) = (0, 0);
    stage.http.answers("/livez", 200).await;
    assert!(stage.http.metric("sexton_leader", &[]).await.is_some());
    for mut stream in hanging {
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        // A connection that is kept open for the rest of a body is not read to its end.
        while Answer::read(&answer).is_none_or(|answer| answer.body.is_empty()) {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..read]);
        }
        let answer = Answer::read(&answer).unwrap();
        match answer.status {
            408 => slow += 1,
            429 => {
                assert_eq!(answer.header("retry-after"), Some("1"));
                busy += 1;
            }
            other => panic!("{other}: {answer:?}"),
        }
    }
    assert_eq!((slow, busy), (16, 24));
    assert_eq!(stage.http.ask(Ask::get("/sources")).await.status, 200);
}
