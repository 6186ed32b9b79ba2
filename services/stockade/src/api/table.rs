//! Answers of the API as tables.

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde_json::Value;

/// The fields of one answer, a line each. Lists inside it become tables of their own.
pub fn fields(answer: &Value) -> String {
    let Some(object) = answer.as_object() else {
        return text(answer);
    };
    let mut table = styled();
    let mut lists = Vec::new();
    for (name, value) in object {
        match value {
            Value::Array(rows) => lists.push((name, rows)),
            value => drop(table.add_row([name.clone(), text(value)])),
        }
    }
    let mut output = table.to_string();
    for (name, list) in lists {
        let columns: Vec<_> = list
            .first()
            .and_then(Value::as_object)
            .map(|row| row.keys().map(String::as_str).collect())
            .unwrap_or_default();
        output.push_str(&format!("\n{name}\n{}", rows(list, &columns)));
    }
    output
}

/// One line for each row, with these fields.
pub fn rows(rows: &[Value], columns: &[&str]) -> String {
    let mut table = styled();
    table.set_header(columns);
    for row in rows {
        table.add_row(columns.iter().map(|column| text(&row[*column])));
    }
    table.to_string()
}

fn styled() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table
}

/// A value without quotes; nothing for null.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{fields, rows};

    #[test]
    fn rows_have_the_columns_that_were_asked_for() {
        let table = rows(
            &[json!({ "id": "vase", "stock": 3, "more": 1, "none": null })],
            &["id", "stock", "none"],
        );
        assert!(table.contains("vase") && table.contains('3'), "{table}");
        assert!(
            !table.contains("more") && !table.contains("null") && !table.contains('"'),
            "{table}"
        );
    }

    #[test]
    fn a_list_inside_an_answer_is_a_table_of_its_own() {
        let table = fields(&json!({ "id": "vase", "segments": [{ "segment": 0, "held": 7 }] }));
        let (head, list) = table.split_once("segments").unwrap();
        assert!(
            head.contains("vase") && list.contains("held") && list.contains('7'),
            "{table}"
        );
    }
}
