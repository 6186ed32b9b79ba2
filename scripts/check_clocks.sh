#!/usr/bin/env bash
# Fails when a test asserts that something took less than a time: it fails on a busy machine, and
# not for a fault.
#
#   assert!(since.elapsed() < ms(500))          a comparison of a measured time in an assertion
#   timeout(ms(500), future).await.unwrap()     a short time-out that must not be reached
#
# Instead: count what the user would notice (attempts, polls, commands), move the clock of the test,
# or make the wrong way take longer than `testbed::timeout()`. A guard against hanging takes
# `testbed::timeout()`, `in_time`, `eventually` or `Deadline`. Lower bounds are welcome. Where only
# the clock can tell, the line above says why:
#
#   // clock: the time is that of a double, which the test moves
#
# `check_clocks.sh FILE...` checks only these files, all of each.
set -euo pipefail
cd "$(dirname "$0")/.."

# finds FILE...: a line for each assertion, FILE:LINE: what it does
finds() {
  # shellcheck disable=SC2016 # the program is awk's
  awk '
    FNR == 1 { begin_file() }
    {
      code = stripped($0)
      blank = (code ~ /^[ \t]*$/)
      if (blank && $0 ~ /^[ \t]*(\/\/|#) clock: *[^ ]/) reason = 1
      else if (!blank) { has_reason[FNR] = reason; reason = 0 }
      if (!is_test) { look_for_tests(); next }
      read(code)
    }
    END { finish() }

    function begin_file() {
      finish()
      delete has_reason
      language = FILENAME
      sub(/.*\./, "", language)
      is_test = whole_files || language != "rs" || FILENAME ~ /\/tests\/|\/tests\.rs$/
      reason = collects = maybe_tests = is_raw = 0
      inside = ""
    }

    # In src/, tests are the module behind this attribute, which is the last of its file.
    function look_for_tests() {
      if (code ~ /#\[cfg\(.*test/) maybe_tests = 1
      # A test that stands in no module of its file is one of a file of tests.
      if (code ~ /^#\[(tokio::)?test[](]/) is_test = 1
      if (maybe_tests && code ~ /(^|[ \]])mod [a-z_]+ *\{/) is_test = 1
      else if (!blank && code !~ /^ *#\[/) maybe_tests = 0
    }

    # The line without comments and without what is in quotes. `inside` is the quote that is open.
    function stripped(line,   result, at, char, rest, hashes) {
      if (inside == "" && line !~ /["\047`#\/]/) return line
      result = ""
      for (at = 1; at <= length(line); at++) {
        char = substr(line, at, 1)
        rest = substr(line, at)
        if (inside != "") {
          if (inside != "*/" && !is_raw && char == "\\") at++
          else if (substr(rest, 1, length(inside)) == inside) {
            at += length(inside) - 1
            inside = ""
          }
          continue
        }
        if (language == "py" ? char == "#" : rest ~ /^\/\//) break
        if (language != "py" && rest ~ /^\/\*/) { inside = "*/"; is_raw = 1; at++; continue }
        if (language == "py" && rest ~ /^("""|\047\047\047)/) {
          inside = substr(rest, 1, 3); is_raw = 0; at += 2; continue
        }
        if (language == "rs" && rest ~ /^r#*"/ && substr(line, at - 1, 1) !~ /[A-Za-z0-9_]/) {
          hashes = rest
          sub(/^r/, "", hashes)
          sub(/".*/, "", hashes)
          inside = "\"" hashes; is_raw = 1; at += 1 + length(hashes)
          result = result "\"\""
          continue
        }
        if (language == "rs" && char == "\047") {
          # A character. Otherwise it is a lifetime.
          if (rest ~ /^\047\\/) { at += index(substr(rest, 4), "\047") + 2; continue }
          if (substr(rest, 3, 1) == "\047") { at += 2; continue }
        } else if (char == "\"" || char == "\047" || (language == "js" && char == "`")) {
          inside = char; is_raw = 0
          result = result "\"\""
          continue
        }
        result = result char
      }
      # Only these go on in the next line.
      if (language != "rs" && (inside == "\"" || inside == "\047")) inside = ""
      return result
    }

    function trigger() {
      if (language == "py") return "(^|[^A-Za-z_])(assert[A-Z][A-Za-z]*\\(|assert )"
      if (language == "js") return "(^|[^A-Za-z_.])assert(\\.[A-Za-z]+)?\\("
      return "(^|[^A-Za-z_])(debug_)?assert(_eq|_ne)?!\\(|" waits()
    }

    function waits() { return "(^|[^A-Za-z_.])timeout\\(|\\.recv_timeout\\(" }

    # Collects statements from a trigger to their ends.
    function read(line,   at, char) {
      while (1) {
        if (!collects) {
          if (!match(line, trigger())) return
          collects = 1; statement = ""; starts_at = FNR; depth = 0
          line = substr(line, RSTART)
        }
        for (at = 1; at <= length(line); at++) {
          char = substr(line, at, 1)
          if (index("([{", char) && (depth || char != "{")) depth++
          else if (index(")]}", char) && depth) depth--
          else if (!depth && (index(";{})]", char) || (at > 1 && char == ","))) break
        }
        statement = statement substr(line, 1, at - 1) "\n"
        if (at > length(line)) {
          if (language == "py" && !depth) { judge(); collects = 0 }
          return
        }
        judge()
        collects = 0
        line = substr(line, at + 1)
      }
    }

    function finish() { if (collects) judge(); collects = 0 }

    # The part of a text up to the bracket that closes its first one.
    function call(text,   at, char, open) {
      open = 0
      for (at = 1; at <= length(text); at++) {
        char = substr(text, at, 1)
        if (index("([{", char)) open++
        else if (index(")]}", char) && --open == 0) return substr(text, 1, at)
      }
      return text
    }

    function judge(   rest, before, asserts, this, line) {
      asserts = trigger()
      rest = statement; before = 0
      while (match(rest, asserts)) {
        line = starts_at + newlines(substr(statement, 1, before + RSTART + (RLENGTH > 1)))
        this = substr(rest, RSTART)
        before += RSTART + RLENGTH - 1
        rest = substr(rest, RSTART + RLENGTH)
        if (this ~ /^[^A-Za-z_]?(timeout|recv_timeout)\(/) must_be_quick(this, line)
        else must_be_less(language == "py" ? this : call(this), line)
      }
    }

    function newlines(text) { return gsub(/\n/, "", text) }

    function found(line, what) {
      if (!has_reason[line] && !is_reported[FILENAME, line]++) print FILENAME ":" line ": " what
    }

    function must_be_less(text, line,   parts, count, n, part, left, right, first) {
      gsub(/[ \n\t]+/, " ", text)
      if (language == "py" && text ~ /assert(Less|Greater)(Equal)?\(/) {
        first = text
        sub(/^[^(]*\(/, "", first)
        count = split(first, parts, /,/)
        if (text ~ /assertLess/ ? is_time(parts[1], "0") : is_time(parts[2], "0")) found(line, "asserts that it took less than a time")
        return
      }
      count = split(text, parts, /&&|\|\||[,;|{}]| and | or /)
      for (n = 1; n <= count; n++) {
        part = parts[n]
        if (match(part, / <=? /)) {
          left = substr(part, 1, RSTART - 1); right = substr(part, RSTART + RLENGTH)
        } else if (match(part, / >=? /)) {
          right = substr(part, 1, RSTART - 1); left = substr(part, RSTART + RLENGTH)
        } else if (part ~ /\.contains\(&/ && part !~ /\.\.\)\.contains/) {
          left = part; right = part
          sub(/.*\.contains\(&/, "", left)
          sub(/\.contains\(&.*/, "", right)
        } else continue
        if (is_time(left, right)) found(line, "asserts that it took less than a time")
      }
    }

    function is_time(left, right) {
      if (left ~ /(^|[^A-Za-z0-9_])(elapsed|(saturating_|checked_)?duration_since)\(/) return 1
      if (left ~ /(Instant|SystemTime|Timestamp)::now\(|(Date|performance)\.now\(|(monotonic|perf_counter|time\.time)\(/) return 1
      if (language == "rs" && left ~ /[a-z0-9_)]\.as_(secs|millis|micros|nanos)(_f32|_f64)?\(/) return 1
      if (left !~ /(^|[^A-Za-z0-9_])(elapsed|took|late|lateness|latency|waited|since|duration|lasted|delay)([^A-Za-z0-9_]|$)/) return 0
      return language != "rs" ||
        right ~ /Duration|from_(secs|millis|micros|nanos)|(^|[^A-Za-z0-9_])(ms|secs?|seconds|minutes|millis)\(|[Tt]imeout|[Dd]eadline|[A-Z][A-Z][A-Z_]/
    }

    # A time-out whose literal duration is shorter than a minute, and whose end is a failure.
    function must_be_quick(text, line,   called, duration, end) {
      sub(/^[^t.]/, "", text)
      called = call(text)
      end = substr(text, length(called) + 1)
      gsub(/[ \n\t]+/, "", end)
      if (end !~ /^(\.await)?\.(unwrap|expect|is_ok)\(/) return
      duration = called
      sub(/^[^(]*\([ \n]*/, "", duration)
      gsub(/_/, "", duration)
      if (duration !~ /^(([a-z]+::)*Duration::from(secs|millis|micros|nanos)|ms|secs|seconds)\([0-9.]+\)/) return
      if (milliseconds(duration) > 0 && milliseconds(duration) < 60000) found(line, "must be done within a short time-out")
    }

    function milliseconds(duration,   number) {
      number = duration
      sub(/^[^(]*\(/, "", number)
      number += 0
      if (duration ~ /^[^(]*(millis|ms)\(/) return number
      if (duration ~ /^[^(]*micros\(/) return number / 1000
      if (duration ~ /^[^(]*nanos\(/) return number / 1000000
      return number * 1000
    }
  ' whole_files="${WHOLE_FILES:-0}" "$@"
}

# Samples. What must be found begins in a line that ends with BAD.
rust_samples() {
  cat <<'SAMPLES'
assert!(since.elapsed() < ms(500)); // BAD
assert!(since.elapsed() >= ms(500), "not before its time");
debug_assert!(began.elapsed() <= LEASE); // BAD
assert!( // BAD
    is_done && since.elapsed() < Duration::from_secs(4),
    "took {:?} (of \" 4 s)",
    since.elapsed()
);
assert!( // BAD
    at.duration_since(due)
        < Duration::from_millis(250),
);
match outcome {
    Err(error) => assert!(since.elapsed() < TEST_TIMEOUT, "{error}"), // BAD
    Ok(_) => assert!(matches!(outcome, Ok(n) if n < 4)),
}
let took = since.elapsed();
assert!(took >= ms(100) && took < ms(4000), "{took:?}"); // BAD
assert!(ms(4000) > took); // BAD
assert!(took >= ms(100), "{took:?} < 4 s");
assert!(took < 3, "units that were taken");
assert!((1..5).contains(&waited.as_secs())); // BAD
assert!((5..).contains(&waited.as_secs()));
assert!(all.iter().all(|late| late.as_millis() < 1000)); // BAD
assert!(Instant::now() < deadline, "{what} did not happen"); // BAD
assert_eq!((found, since.elapsed() < LEASE), (1, true)); // BAD
// clock: it may never end.
assert!(since.elapsed() < timeout());
// clock: the reason needs
// two lines.
assert!(
    since.elapsed() < timeout(),
);
assert!(process.silent.as_secs() < 60, "{process:?}"); // BAD
assert!(process.silent.as_secs_f64() >= 0.5);
assert!(left.as_millis() > HOUR.as_millis());
assert!(since.elapsed() < timeout()); // BAD
// clock:
assert!(since.elapsed() < timeout()); // BAD
// clock: a reason that is
let far = "away";
assert!(since.elapsed() < timeout()); // BAD
timeout(ms(5000), waiter).await.unwrap(); // BAD
tokio::time::timeout(Duration::from_secs(1), async { // BAD
    assert!(began.elapsed() < ms(1)); // BAD
    queue.push(1);
})
.await
.expect("in time");
let next = timeout(Duration::from_millis(59_999), waiter) // BAD
    .await
    .unwrap();
assert!(timeout(ms(10), waiter).await.is_ok()); // BAD
lines.recv_timeout(Duration::from_secs(30)).expect("a line"); // BAD
let given_up = timeout(ms(200), waiter).await;
assert!(timeout(ms(200), waiter).await.is_err());
timeout(ms(0), guard.lost()).await.expect("at once");
timeout(Duration::from_secs(120), waiter).await.unwrap();
timeout(testbed::timeout(), waiter).await.unwrap();
builder.timeout(ms(400)).build().await.unwrap();
let quote = '"'; // assert!(since.elapsed() < ms(1));
let text = r#"assert!(since.elapsed() < ms(1)) ""#;
let text = "a text of two lines \
    assert!(since.elapsed() < ms(1));";
/* assert!(since.elapsed() < ms(1)); */
while since.elapsed() < ms(300) { sample(); }
SAMPLES
}

src_samples() {
  cat <<'SAMPLES'
fn product(since: Instant) { debug_assert!(since.elapsed() < LEASE); }
#[cfg(test)]
use std::time::Instant;
fn more(since: Instant) { debug_assert!(since.elapsed() < LEASE); }
#[cfg(test)]
mod tests {
    fn test() { assert!(since.elapsed() < LEASE); } // BAD
}
SAMPLES
}

python_samples() {
  cat <<'SAMPLES'
"""assert time.monotonic() < until"""
self.assertLess(time.monotonic() - began, 2)  # BAD
self.assertLess(  # BAD
    took,
    2,
)
self.assertLess(count, 2, "took fewer")
self.assertGreaterEqual(took, 2)
self.assertGreater(2, took)  # BAD
assert time.monotonic() < until, "late"  # BAD
assert len(orders) < 3
# clock: a clock of the test
assert time.monotonic() < until
self.assertTrue(elapsed <= 0.5)  # BAD
SAMPLES
}

js_samples() {
  cat <<'SAMPLES'
assert.ok(Date.now() - began < 500); // BAD
assert.ok( // BAD
  took <= 500,
  `took ${took}`,
);
assert.ok(took >= 500);
assert(performance.now() < until); // BAD
assert.ok(orders.length < 3);
// clock: a clock of the test
assert.ok(Date.now() < until);
assert.equal('assert(Date.now() < until)', text);
SAMPLES
}

# still_finds NAME: what the check finds in the samples on standard input is what is marked
still_finds() {
  local folder=$1/$2 expected actual
  mkdir -p "$(dirname "$folder")"
  cat >"$folder"
  expected=$(grep -n 'BAD$' "$folder" | cut -d : -f 1)
  actual=$(finds "$folder" | sed -n 's/^[^:]*:\([0-9]*\):.*/\1/p' | sort -n)
  if [ "$expected" != "$actual" ]; then
    echo "$0 is broken: in the lines of its samples $2, it should find < and finds >" >&2
    diff <(echo "$expected") <(echo "$actual") >&2 || true
    return 1
  fi
}

self_test() {
  local folder
  folder=$(mktemp -d)
  # shellcheck disable=SC2064 # the folder of now
  trap "rm -rf '$folder'" EXIT
  rust_samples | still_finds "$folder" tests/it/sample.rs
  src_samples | still_finds "$folder" src/sample.rs
  python_samples | still_finds "$folder" tests/test_sample.py
  js_samples | still_finds "$folder" test/sample.test.js
}

test_files() {
  find crates services lab load-tests -name target -prune -o -name '*.rs' -print
  find clients -name node_modules -prune -o \( -path '*/tests/*.py' -o -path '*/test/*.js' \) -print
}

self_test
if [ $# -gt 0 ]; then
  found=$(WHOLE_FILES=1 finds "$@")
else
  found=$(test_files | sort | tr '\n' '\0' | xargs -0 bash -c "$(declare -f finds); finds \"\$@\"" finds)
fi
# The driver's own time-outs are half a second and one second, which a busy machine reaches.
hasty=''
if [ $# -eq 0 ]; then
  hasty=$(grep -rnE --include='*.rs' 'get_multiplexed_async_connection\(\)|ClusterClient::new\(' \
    crates/*/tests services/*/tests lab/acceptance lab/cost lab/testkit lab/testbed/tests || true)
fi
if [ -n "$hasty" ]; then
  printf '%s\n' "$hasty"
  echo 'these connections to Redis give up after half a second: testbed::patient_connection waits for testbed::timeout()' >&2
  exit 1
fi
if [ -n "$found" ]; then
  printf '%s\n' "$found"
  echo "$(printf '%s\n' "$found" | grep -c '') tests depend on the speed of the machine: count what a user would notice, move the" \
    "test's clock, or wait with testbed::timeout(), in_time or eventually; scripts/check_clocks.sh says more" >&2
  exit 1
fi
