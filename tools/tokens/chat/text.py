"""text.py: a tokenizer's folder: texts and chats as ids, ids as text, and the ids that end a reply."""
import datetime
import json
import os
import re

from failure import BAD_DATA, NO_INPUT, NO_LIBRARY, Failure

try:
    from tokenizers import Tokenizer
except ImportError as error:
    raise Failure(NO_LIBRARY, f"needs Python's package tokenizers (pip install tokenizers): {error}") from error

CONTEXT = 6  # tokens before the reply with which its first ones are decoded


def find_folder(path):
    """The folder with tokenizer.json: of a checkpoint, of the latest of a run, or of a file of weights."""
    folder = path if os.path.isdir(path) else os.path.dirname(path) or os.curdir
    for place in (folder, os.path.join(folder, "latest")):
        if os.path.exists(os.path.join(place, "tokenizer.json")):
            return place
    raise Failure(NO_INPUT, f"{path}: no tokenizer.json there, nor in its latest: name the tokenizer's folder with --tokenizer DIR")


def read_json(folder, name):
    """The object in a file; empty if there is none."""
    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Failure(NO_INPUT, f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise Failure(BAD_DATA, f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Failure(BAD_DATA, f"{path}: expected an object")
    return value


def token_text(token):
    return token.get("content") if isinstance(token, dict) else token


class Text:
    def __init__(self, folder):
        self.folder = folder
        path = os.path.join(folder, "tokenizer.json")
        if not os.path.exists(path):
            raise Failure(NO_INPUT, f"{path}: no such file")
        try:
            self.tokenizer = Tokenizer.from_file(path)
        except Exception as error:  # the package raises nothing narrower
            raise Failure(BAD_DATA, f"{path}: {error}") from error
        self.config = read_json(folder, "tokenizer_config.json")
        self.template = self.read_template()

    def read_template(self):
        """The text of the chat template; None: there is none."""
        path = os.path.join(self.folder, "chat_template.jinja")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return file.read()
        template = self.config.get("chat_template") or read_json(self.folder, "chat_template.json").get("chat_template")
        if isinstance(template, list):  # several, by name
            template = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}.get("default")
        return template if isinstance(template, str) else None

    def has_template(self):
        return self.template is not None

    def stop_ids(self):
        """Those of generation_config.json, else of config.json, else the tokenizer's end of text."""
        for name in ("generation_config.json", "config.json"):
            ids = read_json(self.folder, name).get("eos_token_id")
            ids = ids if isinstance(ids, list) else [ids]
            if ids and all(isinstance(token, int) and token >= 0 for token in ids):
                return ids
        end = token_text(self.config.get("eos_token"))
        token = self.tokenizer.token_to_id(end) if isinstance(end, str) else None
        return [] if token is None else [token]

    def ids_of(self, text):
        """Of a text to continue, with what the tokenizer puts before one."""
        ids = self.tokenizer.encode(text).ids
        while ids and ids[-1] in self.stop_ids() and len(self.tokenizer.encode(text, add_special_tokens=False).ids) < len(ids):
            ids = ids[:-1]
        if not ids:
            raise Failure(BAD_DATA, f"{text!r}: no tokens")
        return ids

    def ids_of_chat(self, messages):
        """Of a chat, up to where the assistant's next message begins."""
        return self.tokenizer.encode(self.render(messages), add_special_tokens=False).ids

    def render(self, messages):
        try:
            from jinja2.exceptions import TemplateError
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            raise Failure(NO_LIBRARY, f"the chat template needs Python's package jinja2 (pip install jinja2): {error}") from error
        if self.template is None:
            raise Failure(BAD_DATA, f"{self.folder}: no chat template, in tokenizer_config.json or chat_template.jinja")

        def raise_exception(message):
            raise TemplateError(message)

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
        environment.globals.update(raise_exception=raise_exception, strftime_now=lambda form: datetime.datetime.now().strftime(form))
        tokens = {name: token_text(value) for name, value in self.config.items() if name.endswith("_token")}
        # What marks the assistant's text for training has no meaning here.
        template = re.sub(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}", lambda tag: f"{{%{tag[1]} {'endif' if tag[2] else 'if true'} {tag[3]}%}}",
                          self.template)
        try:
            return environment.from_string(template).render(messages=messages, add_generation_prompt=True, **tokens)
        except Exception as error:  # the template's own, and those of its language
            raise Failure(BAD_DATA, f"{self.folder}: the chat template: {error}") from error

    def stream(self, ids):
        return Stream(self.tokenizer, ids)


class Stream:
    """Ids as text, as they come: a piece is held back while its last character is not whole."""

    def __init__(self, tokenizer, ids):
        self.tokenizer, self.ids = tokenizer, list(ids[-CONTEXT:])
        self.shown = len(self.ids)  # whose text was given

    def decode(self, past=None):
        return self.tokenizer.decode(self.ids[:past], skip_special_tokens=True)

    def add(self, token):
        self.ids.append(token)
        return self.piece(False)

    def end(self):
        return self.piece(True)

    def piece(self, ends):
        before, now = self.decode(self.shown), self.decode()
        if len(now) <= len(before) or (now.endswith("\ufffd") and not ends):
            return ""
        del self.ids[:self.shown]
        self.shown = len(self.ids)
        return now[len(before):]
