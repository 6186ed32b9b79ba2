"""How Python and JavaScript write what their clients have in common."""

import textwrap

WIDTH = 100


def fill(text, prefix="", width=WIDTH):
    """The text in lines of that width, each behind the prefix."""
    return textwrap.fill(
        " ".join(text.split()),
        width,
        initial_indent=prefix,
        subsequent_indent=prefix,
        break_long_words=False,
        break_on_hyphens=False,
    )


def screaming(name):
    """The name of a type as that of a constant."""
    return "".join(f"_{one}" if one.isupper() else one for one in name).strip("_").upper()


def camel(word):
    """A word of the API as the name of a variant."""
    return "".join(part.capitalize() for part in word.split("_"))


class Language:
    """What differs is punctuation, and the names of types."""

    quote: str
    #: What each type of the description is called.
    types: dict[str, str]
    #: What an array is called, by its items.
    array: str
    #: Hand-written parts of models.
    parts: list[str]
    #: What checks a value of a request, by its type; a key, and a value that may be absent.
    checks: dict[str, str]

    def check(self, field, value):
        """The call that checks a value. Without one the service alone does."""
        if field.name == "key":
            return f"{self.checks['key']}({value})"
        check = "" if field.is_array else self.checks.get(field.type, "")
        call = f"{self.checks['absent']}({check}, " if field.is_optional else f"{check}("
        return f"{call}{self.quote}{field.name}{self.quote}, {value})" if check else ""

    def type_of(self, field):
        name = self.types.get(field.type, field.name_of_type)
        return self.array.format(name) if field.is_array else name

    def quoted(self, words):
        return [f"{self.quote}{word}{self.quote}" for word in words]

    def rows(self, words, indent):
        return "".join(f"{' ' * indent}{word},\n" for word in self.quoted(words))


class Python(Language):
    """Data classes, and a `TypedDict` for what stays the object of the answer."""

    quote = '"'
    #: An enum is open: a later service may have more words.
    types = {
        "string": "str",
        "enum": "str",
        "time": "datetime",
        "integer": "int",
        "boolean": "bool",
        "object": "dict[str, Any]",
    }
    array = "list[{}]"
    parts = ["EventParts", "HasUnits", "PaymentChecks"]
    #: What makes another value for each object.
    factories = {"an empty object": "dict", "a new key": "random_key"}
    checks = {
        "string": "checks.text",
        "enum": "checks.text",
        "integer": "checks.whole",
        "key": "checks.key",
        "absent": "checks.if_stated",
    }

    def head(self, title, about):
        return f'"""{title}\n\n{fill(about)}\n"""\n'

    def imports(self):
        return (
            "\nfrom __future__ import annotations\n"
            "\nfrom dataclasses import dataclass, field\nfrom datetime import datetime\n"
            "from typing import Any, NotRequired, TypedDict\n"
            "\nfrom . import checks\n"
            f"from .parts import {', '.join([*self.parts, 'random_key'])}\n"
        )

    def comment(self, text, indent=0):
        return fill(text, " " * indent + "#: ") + "\n" if text else ""

    def code_set(self, name, codes):
        return f"{name} = frozenset(\n    {{\n{self.rows(codes, 8)}    }}\n)\n"

    def enum(self, name, words):
        name = f"{screaming(name)}S".replace("YS", "IES")
        line = f"{name} = ({', '.join(self.quoted(words))}{',' * (len(words) == 1)})\n"
        return line if len(line) <= WIDTH + 1 else f"{name} = (\n{self.rows(words, 4)})\n"

    def model(self, model, fields):
        """A class. Fields with a default come last, as they must."""
        if model.is_plain:
            head, base = "\n\n", "(TypedDict)"
        else:
            head = "\n\n@dataclass(frozen=True)\n"
            base = f"({model.parts})" if model.parts in self.parts else ""
            fields = sorted(fields, key=lambda field: self._default(field) != "")
        write = self._plain_field if model.is_plain else self._field
        body = "".join(self.comment(field.doc, 4) + write(model, field) for field in fields)
        body += self._made(fields) if model.is_made else ""
        return f"{head}class {model.name}{base}:\n{self._docstring(model.doc)}\n{body}"

    def _docstring(self, text):
        line = f'    """{text}"""\n'
        return line if len(line) <= WIDTH + 1 else fill(f'"""{text}', "    ") + '\n    """\n'

    def _field(self, _, field):
        default = self._default(field)
        null = " | None" if default == " = None" else ""
        if default and field.is_keyword:
            default = f" = field(default={default[3:]}, kw_only=True)"
        return f"    {field.name}: {self.type_of(field)}{null}{default}\n"

    def _default(self, field):
        if field.filled in self.factories:
            return f" = field(default_factory={self.factories[field.filled]})"
        if field.filled is not None:
            return f" = {field.filled}"
        return " = None" if field.is_optional else ""

    def _plain_field(self, model, field):
        # What the service leaves out it never sends as null.
        is_null = field.is_null and (field.is_required or model.is_sent)
        kind = f"{self.type_of(field)}{' | None' if is_null else ''}"
        return f"    {field.name}: {kind if field.is_required else f'NotRequired[{kind}]'}\n"

    def _made(self, fields):
        """The checks of an object, and the body of its request if that has not all fields."""
        checks = [self.check(field, f"self.{field.name}") for field in fields]
        rows = "".join(f"        {check}\n" for check in checks if check)
        text = f"\n    def __post_init__(self) -> None:\n{rows}"
        if all(field.is_in_body for field in fields):
            return text
        names = [field.name for field in fields if field.is_in_body]
        rows = "".join(f'            "{name}": self.{name},\n' for name in names)
        return (
            f"{text}\n    def body(self) -> dict[str, object]:\n"
            f"        stated = {{\n{rows}        }}\n"
            "        return {name: value for name, value in stated.items() if value is not None}\n"
        )


class JavaScript(Language):
    """Interfaces of TypeScript, and a `type` for what stays the object of the answer."""

    quote = "'"
    types = {
        "string": "string",
        "time": "Date",
        "integer": "number",
        "boolean": "boolean",
        "object": "Record<string, unknown>",
    }
    array = "{}[]"
    parts = ["EventParts"]
    checks = {
        "string": "checkText",
        "enum": "checkText",
        "integer": "checkWhole",
        "key": "checkKey",
        "absent": "ifStated",
    }

    def head(self, title, about):
        return f"// {title}\n//\n{fill(about, '// ')}\n"

    def imports(self):
        return f"\nimport type {{ {', '.join(self.parts)} }} from './parts.js';\n"

    def comment(self, text, indent=0):
        pad = " " * indent
        line = f"{pad}/** {' '.join(text.split())} */\n"
        if not text or len(line) <= WIDTH + 1:
            return line if text else ""
        return f"{pad}/**\n{fill(text, f'{pad} * ')}\n{pad} */\n"

    def code_set(self, name, codes):
        return f"export const {name} = new Set([\n{self.rows(codes, 2)}]);\n"

    def enum(self, name, words):
        line = f"export type {name} = {' | '.join(self.quoted(words))};\n"
        if len(line) <= WIDTH + 1:
            return line
        rows = "".join(f"\n  | {word}" for word in self.quoted(words))
        return f"export type {name} ={rows};\n"

    def model(self, model, fields):
        """A `type` fits `Record` as well, which an interface does not."""
        base = f" extends {model.parts}" if model.parts in self.parts else ""
        head = f"type {model.name} =" if model.is_plain else f"interface {model.name}{base}"
        write = self._field
        body = "".join(self.comment(field.doc, 2) + write(model, field) for field in fields)
        end = "};" if model.is_plain else "}"
        return f"\n{self.comment(model.doc)}export {head} {{\n{body}{end}\n"

    def _field(self, model, field):
        is_there = field.is_required or field.filled is not None
        # What the service leaves out it never sends as null.
        is_null = field.is_null and (is_there or model.takes_null)
        null = " | null" if is_null else ""
        name = f"readonly {field.name}" if model.is_frozen else field.name
        return f"  {name}{'' if is_there else '?'}: {self.type_of(field)}{null};\n"

    def request(self, model, fields):
        """The function that checks an object, and that of its body if that has not all fields."""
        values = {field.name: f"made.{field.name}" for field in fields}
        checked = {f.name: self.check(f, values[f.name]) or values[f.name] for f in fields}
        body = {field.name: values[field.name] for field in fields if field.is_in_body}
        text = self._function(f"checked{model.name}", checked)
        return text if body == values else text + self._function(f"bodyOf{model.name}", body)

    def _function(self, name, values):
        rows = "".join(f"    {field}: {value},\n" for field, value in values.items())
        return f"\nexport function {name}(made) {{\n  return {{\n{rows}  }};\n}}\n"
