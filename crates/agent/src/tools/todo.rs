//! TodoWrite: the policy's own to-do list.

use std::fmt::Write as _;

use crate::elide::clip_line;
use crate::tools::arguments::{Todo, TodoStatus, TodoWrite};
use crate::tools::files::Answer;

/// Maximum number of entries.
const MAX_ENTRIES: usize = 100;
/// Maximum bytes shown of one entry.
const MAX_ENTRY_BYTES: usize = 500;

/// Replaces the list and returns it as text.
pub(crate) fn write(list: &mut Vec<Todo>, arguments: TodoWrite) -> Answer {
    let todos = arguments.todos;
    if todos.len() > MAX_ENTRIES {
        let count = todos.len();
        return Err(
            format!("failed to keep the list: {count} entries, at most {MAX_ENTRIES}").into()
        );
    }
    if let Some(at) = todos.iter().position(|todo| todo.content.trim().is_empty()) {
        return Err(format!("failed to keep the list: entry {} is empty", at + 1).into());
    }
    let begun = todos.iter().filter(|todo| todo.status == TodoStatus::InProgress).count();
    if begun > 1 {
        return Err(format!(
            "failed to keep the list: {begun} entries are in_progress, at most one may be"
        )
        .into());
    }
    *list = todos;
    Ok(render(list))
}

fn render(list: &[Todo]) -> String {
    if list.is_empty() {
        return "the list is empty\n".to_owned();
    }
    let mut text = String::new();
    for todo in list {
        let mark = match todo.status {
            TodoStatus::Pending => " ",
            TodoStatus::InProgress => ">",
            TodoStatus::Completed => "x",
        };
        let content = clip_line(&todo.content.replace('\n', " "), MAX_ENTRY_BYTES);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "[{mark}] {content}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::files::NoAnswer;

    fn todo(content: &str, status: TodoStatus) -> Todo {
        Todo { content: content.to_owned(), status, ..Todo::default() }
    }

    #[test]
    fn valid_todo_list_is_shown_and_invalid_one_changes_nothing() {
        let mut list = Vec::new();
        let todos = vec![
            todo("read model.py", TodoStatus::Completed),
            todo("fuse", TodoStatus::InProgress),
            todo("tune", TodoStatus::Pending),
        ];
        let shown = write(&mut list, TodoWrite { todos: todos.clone() }).unwrap();
        insta::assert_snapshot!(shown, @"
        [x] read model.py
        [>] fuse
        [ ] tune
        ");
        let two = vec![todo("a", TodoStatus::InProgress), todo("b", TodoStatus::InProgress)];
        let many = vec![todo("a", TodoStatus::Pending); 101];
        for bad in [two, many, vec![todo(" ", TodoStatus::Pending)]] {
            assert!(matches!(
                write(&mut list, TodoWrite { todos: bad }),
                Err(NoAnswer::Refused(_))
            ));
            assert_eq!(list, todos);
        }
    }
}
