//! Where it was measured.

use maud::{Markup, html};
use serde_json::Value;

use crate::document::Document;
use crate::error::{Error, Result};

/// The machine in one line.
pub(super) fn summary(document: &Document) -> String {
    let machine = &document.environment;
    let cpus = machine.cpus.len();
    let kernel = machine.kernel.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let date = machine.date.get(..10).unwrap_or("at an unknown date");
    format!("{date}: {}, {cpus} CPUs, {kernel}, mpxdp {}", machine.cpu_model, machine.version)
}

/// Everything that the document says about it, folded away.
///
/// # Errors
///
/// Never in practice: if the environment cannot be turned into JSON.
pub(super) fn details(document: &Document) -> Result<Markup> {
    let value = serde_json::to_value(&document.environment)
        .map_err(|error| Error::failed("cannot describe the environment", error))?;
    let mut lines = Vec::new();
    flatten("", &value, &mut lines);
    Ok(html! {
        details {
            summary { "Environment" }
            dl { @for (name, text) in &lines { dt { (name) } dd { (text) } } }
        }
    })
}

/// Nested fields become `outer inner`; fields that are empty are left out.
fn flatten(name: &str, value: &Value, lines: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (field, value) in fields {
                let field = field.replace('_', " ");
                let name = if name.is_empty() { field } else { format!("{name} {field}") };
                flatten(&name, value, lines);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (n, item) in items.iter().enumerate() {
                let own = item.get("name").and_then(Value::as_str);
                let number = n.to_string();
                flatten(&format!("{name} {}", own.unwrap_or(&number)), item, lines);
            }
        }
        Value::Array(items) if items.is_empty() => {}
        Value::Array(items) => {
            let all: Vec<String> = items.iter().map(plain).collect();
            lines.push((name.to_owned(), all.join(", ")));
        }
        Value::String(text) if text.is_empty() => {}
        other => lines.push((name.to_owned(), plain(other))),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}
