//! `#[tested]`: a function is tested where it stands, and no list names it a second time.
//! `#[tested_in]`: a function is a test, and an environment is made for it.
//!
//! A crate of its own, because an attribute needs one. It depends on nothing, so that the tests of
//! `crates/lock` may use it.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

type Result<T> = std::result::Result<T, &'static str>;

/// Makes tests of a function: names it to a macro, which knows the cases.
///
/// Below `#[tested(on_both)]`, the function `a_guarantee` stays as it is, and
/// `on_both! { a_guarantee }` follows it. With values, as in `#[tested(on_both(run))]`, that is
/// `on_both! { a_guarantee (run) }`. The macro makes a module of the function's name. Its tests are
/// named after the cases and call `super::a_guarantee`, so one of them is `file::a_guarantee::case`.
///
/// The tests of a function below `#[cfg]` are below it as well. `#[ignore]` and `#[should_panic]`
/// have no effect on a function that is no test, and are refused.
#[proc_macro_attribute]
pub fn tested(cases: TokenStream, function: TokenStream) -> TokenStream {
    let tests = tests(cases, function.clone()).unwrap_or_else(compile_error);
    function.into_iter().chain(tests).collect()
}

/// Makes a test of a function that is given its environment.
///
/// Below `#[tested_in(open(options))]`, the body of `async fn a_guarantee(env: Env)` is what
/// `open(options, async |env: Env| { .. }).await` runs, in the test `a_guarantee`. A function without
/// a parameter becomes `open(options, async || { .. }).await`.
#[proc_macro_attribute]
pub fn tested_in(opening: TokenStream, function: TokenStream) -> TokenStream {
    test_in(opening, function).unwrap_or_else(compile_error)
}

fn test_in(opening: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let mut opening: Vec<TokenTree> = opening.into_iter().collect();
    let values = opening
        .pop()
        .and_then(|last| group(&last, Delimiter::Parenthesis));
    let mut function: Vec<TokenTree> = function.into_iter().collect();
    let body = function.pop_if(|last| group(last, Delimiter::Brace).is_some());
    let env = function
        .pop()
        .and_then(|last| group(&last, Delimiter::Parenthesis));
    let (Some(mut values), Some(body), Some(env)) = (values, body, env) else {
        return Err("#[tested_in(open(options))] stands above `async fn a_guarantee(env: Env)`");
    };
    values.extend(tokens(", async |"));
    values.extend(env);
    values.extend(tokens("|").into_iter().chain([body]));
    opening.push(Group::new(Delimiter::Parenthesis, values).into());
    opening.extend(tokens(".await;"));
    let mut test = tokens("#[tokio::test(flavor = \"multi_thread\")]");
    test.extend(function);
    test.extend(tokens("()"));
    let run = Group::new(Delimiter::Brace, opening.into_iter().collect());
    test.extend([TokenTree::from(run)]);
    Ok(test)
}

/// Tokens that the caller could have written.
fn tokens(text: &str) -> TokenStream {
    text.parse().expect("tokens of Rust")
}

fn tests(cases: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let (mut tests, mut item) = (conditions(function.clone())?, function.into_iter());
    let mut cases: Vec<TokenTree> = cases.into_iter().collect();
    let values = cases.pop_if(|last| group(last, Delimiter::Parenthesis).is_some());
    if cases.is_empty() {
        return Err("name the macro that makes the tests: #[tested(on_both)]");
    }
    item.find(|token| is_word(token, "fn"));
    let Some(name @ TokenTree::Ident(_)) = item.next() else {
        return Err("#[tested] stands above a function");
    };
    tests.extend(cases);
    tests.extend(call([name].into_iter().chain(values)));
    Ok(tests)
}

/// The `#[cfg]` above a function.
fn conditions(function: TokenStream) -> Result<TokenStream> {
    let mut conditions = TokenStream::new();
    let mut item = function.into_iter();
    while let (Some(hash), Some(attribute)) = (item.next(), item.next()) {
        let Some(inside) = group(&attribute, Delimiter::Bracket) else {
            break;
        };
        match inside.into_iter().next() {
            Some(name) if is_word(&name, "cfg") => conditions.extend([hash, attribute]),
            Some(name) if is_word(&name, "ignore") || is_word(&name, "should_panic") => {
                return Err("an attribute of tests stands in the macro that makes them");
            }
            _ => {}
        }
    }
    Ok(conditions)
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

fn group(token: &TokenTree, delimiter: Delimiter) -> Option<TokenStream> {
    match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group.stream()),
        _ => None,
    }
}

/// What follows the name of a macro: `! { ARGUMENTS }`.
fn call(arguments: impl IntoIterator<Item = TokenTree>) -> [TokenTree; 2] {
    let arguments = arguments.into_iter().collect();
    [
        Punct::new('!', Spacing::Alone).into(),
        Group::new(Delimiter::Brace, arguments).into(),
    ]
}

fn compile_error(wrong: &str) -> TokenStream {
    let name: TokenTree = Ident::new("compile_error", Span::call_site()).into();
    let text: TokenTree = Literal::string(wrong).into();
    [name].into_iter().chain(call([text])).collect()
}
