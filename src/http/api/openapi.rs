//! The description of the API (OpenAPI 3.1), made of the routes themselves: what is not in it is not served.

use std::sync::Arc;

use axum::{Router, http::header, response::IntoResponse, routing::get};
use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Api, bulk, dead_letters, line, look,
    problem::{MEDIA_TYPE, Problem, Wrong},
    query::{Nothing, Query},
};
use crate::letter::{Group, Reason};

/// Where the API begins.
const BASE: &str = "/api/v1";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sexton",
        description = "Look through dead letters, find out why they died, retry and remove them.\n\nEverybody may look; \
                       a token is needed to change something or to see a payload. Errors are problem documents (RFC \
                       9457). Fields without a value are null, times are RFC 3339 in UTC, and fields may be added \
                       within a version.",
    ),
    components(schemas(Problem, Wrong)),
    tags(
        (name = "sources", description = "The watched dead-letter queues"),
        (name = "dead letters", description = "One by one"),
        (name = "operations", description = "Many at a time: asked for here, worked off by the leader"),
        (name = "groups", description = "What died alike"),
        (name = "alerts", description = "The line, and what is said of it"),
        (name = "hooks", description = "Who is told"),
        (name = "audit", description = "Who did what"),
        (name = "description", description = "This document"),
    )
)]
struct Description;

/// The routes and their description.
fn described() -> (Router<Arc<Api>>, utoipa::openapi::OpenApi) {
    let routes = OpenApiRouter::new()
        .routes(routes!(look::sources))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::show, dead_letters::remove))
        .routes(routes!(dead_letters::errors))
        .routes(routes!(dead_letters::explain))
        .routes(routes!(dead_letters::retry))
        .routes(routes!(bulk::retry))
        .routes(routes!(bulk::delete))
        .routes(routes!(bulk::purge))
        .routes(routes!(bulk::operations))
        .routes(routes!(bulk::operation))
        .routes(routes!(bulk::cancel))
        .routes(routes!(look::hooks))
        .routes(routes!(line::alerts))
        .routes(routes!(line::samples))
        .routes(routes!(look::groups))
        .routes(routes!(look::audit));
    OpenApiRouter::with_openapi(Description::openapi()).nest(BASE, routes).split_for_parts()
}

/// The routes, and the one that describes them.
pub(super) fn routes() -> Router<Arc<Api>> {
    let (routes, description) = described();
    let text: Arc<str> = complete(description).to_string().into();
    let describe = move |_: Query<Nothing>| async move {
        ([(header::CONTENT_TYPE, "application/json")], text.to_string()).into_response()
    };
    routes.route(&format!("{BASE}/openapi.json"), get(describe))
}

/// What is the same for all routes, and would have to be repeated for each.
fn complete(description: utoipa::openapi::OpenApi) -> Value {
    let mut document = serde_json::to_value(description).unwrap_or_default();
    document["openapi"] = json!("3.1.0");
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["components"]["securitySchemes"] = json!({"bearer": {
        "type": "http", "scheme": "bearer",
        "description": "One of the tokens in http.token, http.token_file or http.tokens",
    }});
    document["paths"][format!("{BASE}/openapi.json")] = json!({"get": {
        "operationId": "openapi", "tags": ["description"], "summary": "Describe this API",
        "responses": {"200": {
            "description": "An OpenAPI 3.1 document",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }},
    }});
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, operations) in paths {
            for operation in operations.as_object_mut().into_iter().flat_map(Map::values_mut) {
                add_problems(path, operation);
                complete_request(operation);
            }
        }
    }
    document["components"]["schemas"]["JobDead"]["example"] = example();
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        for (name, schema) in schemas {
            add_formats(schema);
            if name == "FilterSpec" {
                schema["properties"]
                    .as_object_mut()
                    .into_iter()
                    .flatten()
                    .for_each(|(name, field)| restrict(name, field));
            }
            // A page says what is on it, not what that looks like.
            if let Some(item) = name.strip_prefix("Page_") {
                schema["properties"]["items"]["items"] = json!({"$ref": format!("#/components/schemas/{item}")});
            }
            // What is sent has every field; what is asked for need not.
            if !name.ends_with("Body") && name != "FilterSpec" {
                require_all(name, schema);
            }
        }
    }
    document
}

/// A dead letter as it is listed.
fn example() -> Value {
    json!({
        "source": "orders", "entry_id": "1795972370488-0", "job_id": "d40ec568-8e2b-4d0e-9a7a-2f1f6f1b6a53",
        "task": "send_email", "queue": "default", "reason": "max_attempts",
        "error": {"type": "ConnectionError", "message": "smtp.example.test:25 timed out after 10.0s"},
        "attempts": 3, "deliveries": 1, "history": "same", "group": "7c1f0e9a2b44",
        "enqueued_at": "2026-11-29T17:12:40.000Z", "died_at": "2026-11-29T17:12:50.488Z", "deaths": 1, "retries": 0,
        "rule": "dependency-flaky", "next_retry_at": "2026-11-29T17:22:50.488Z", "traceparent": null,
    })
}

/// What a request may leave out, and what its parameters may be.
fn complete_request(operation: &mut Value) {
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        parameter["required"] = json!(parameter["in"] == json!("path"));
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        restrict(&name, &mut parameter["schema"]);
    }
    if let Some(body) = operation.get_mut("requestBody").and_then(Value::as_object_mut) {
        let schema = &body["content"]["application/json"]["schema"]["$ref"];
        // Everything in it may be left out, and so it may itself.
        let required = *schema != json!("#/components/schemas/RetryBody");
        body.insert("required".to_owned(), json!(required));
    }
}

/// What is known of a field of this name in a filter, beside its type.
fn restrict(name: &str, schema: &mut Value) {
    match name {
        "reason" if !schema["items"].is_null() => schema["items"]["enum"] = json!(Reason::NAMES),
        "group" if !schema["items"].is_null() => {
            schema["items"]["pattern"] = json!(format!("^[0-9a-fA-F]{{{}}}$", Group::DIGITS));
        }
        "older_than" | "newer_than" => schema["pattern"] = json!("^[0-9]{1,9}(s|m|h|d)$"),
        _ => {}
    }
}

/// The problems that a request of this operation may be answered with.
fn add_problems(path: &str, operation: &mut Value) {
    let has = |key: &str| operation.get(key).is_some();
    let (needs_token, has_body) = (operation.get("security") == Some(&json!([{"bearer": []}])), has("requestBody"));
    let mut problems = vec![
        (400, "Something is wrong with the request; `errors` says what and where"),
        (401, "A token is needed, or the one given is not known"),
        (429, "Too many requests at the same time"),
        (500, "Something that nobody foresaw"),
        (503, "A store is in trouble, or it took too long; ask again after `Retry-After` seconds"),
    ];
    if path.contains('{') || has("parameters") || has_body {
        problems.push((404, "What is named is not there"));
    }
    if needs_token {
        problems.push((403, "No token is configured, so nothing can be changed"));
    }
    if has_body {
        problems.push((408, "The body did not arrive in time"));
        problems.push((413, "The body is too large"));
        problems.push((415, "The body is no JSON"));
    }
    for (status, description) in problems {
        let response = &mut operation["responses"][status.to_string()];
        if response.is_null() {
            let schema = json!({"$ref": "#/components/schemas/Problem"});
            *response = json!({"description": description, "content": {MEDIA_TYPE: {"schema": schema}}});
        }
        if let 429 | 503 = status {
            let seconds =
                json!({"description": "Seconds until it is worth asking again", "schema": {"type": "integer"}});
            response["headers"]["Retry-After"] = seconds;
        }
    }
}

/// Times are told by their names.
fn add_formats(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get_mut("properties") {
                for (name, property) in properties {
                    let is_time = name.ends_with("_at") || name.ends_with("_until") || name == "at" || name == "since";
                    if let (true, Some(property)) = (is_time, property.as_object_mut())
                        && (property["type"] == json!("string") || property["type"] == json!(["string", "null"]))
                    {
                        property.insert("format".to_owned(), json!("date-time"));
                    }
                }
            }
            map.values_mut().for_each(add_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(add_formats),
        _ => {}
    }
}

/// Fields that are left out where there is nothing to say, by schema; all others are there, though perhaps null.
const LEFT_OUT: [(&str, &[&str]); 4] = [
    ("Exact", &["payload_text", "fields"]),
    ("JobDead", &["traceback", "attempt_errors", "payload"]),
    ("Problem", &["errors", "refusal"]),
    ("Wrong", &["pointer", "parameter"]),
];

fn require_all(name: &str, schema: &mut Value) {
    let left_out = LEFT_OUT.iter().find(|(schema, _)| *schema == name).map_or(&[][..], |(_, fields)| fields);
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                let there: Vec<&String> =
                    properties.keys().filter(|field| !left_out.contains(&field.as_str())).collect();
                let there = json!(there);
                map.insert("required".to_owned(), there);
            }
            map.values_mut().for_each(|inner| require_all(name, inner));
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| require_all(name, inner)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `$ref` in it.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|inner| references(inner, found));
            }
            Value::Array(items) => items.iter().for_each(|inner| references(inner, found)),
            _ => {}
        }
    }

    #[test]
    fn it_is_whole() {
        let document = complete(described().1);
        let schemas = &document["components"]["schemas"];
        let mut referred = Vec::new();
        references(&document, &mut referred);
        assert!(referred.len() > 100);
        for reference in referred {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(schemas[name].is_object(), "{reference} leads nowhere");
        }
        for (name, left_out) in LEFT_OUT {
            let all = schemas[name].to_string();
            assert!(left_out.iter().all(|field| all.contains(&format!("\"{field}\":"))), "{name}: {left_out:?}");
        }
        // What is listed has exactly the fields that must be there.
        let required = schemas["JobDead"]["required"].as_array().unwrap();
        let mut required: Vec<&str> = required.iter().map(|field| field.as_str().unwrap()).collect();
        required.sort_unstable();
        assert_eq!(required, example().as_object().unwrap().keys().collect::<Vec<_>>());
        assert_eq!(schemas["JobDead"]["properties"]["died_at"]["format"], "date-time");
    }
}
