"""Parse a template: the language of Go's `text/template`, with the functions that Loki registers."""

from __future__ import annotations

import functools
import re

from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.quantities import number as parse_float
from lakerunner.query.logql.stages.template import lexer
from lakerunner.query.logql.stages.template.functions import FUNCTIONS
from lakerunner.query.logql.stages.template.go_numbers import INT_MAX, INT_MIN, parse_int
from lakerunner.query.logql.stages.template.nodes import (
    Action,
    Block,
    Bool,
    Branch,
    Break,
    Chain,
    Command,
    Continue,
    Dot,
    Field,
    Identifier,
    Invocation,
    Nil,
    Node,
    Number,
    Operand,
    Pipe,
    String,
    Template,
    Text,
    Variable,
)
from lakerunner.query.syntax.limits import DepthGuard
from lakerunner.query.syntax.strings import unquote
from lakerunner.query.syntax.tokens import END, Cursor, Token

#: What a block ends with.
_END, _ELSE = "end", "else"
#: Templates that stay in memory: the planner, the printer and every batch ask for the same few.
_CACHED = 256
_OPERANDS = (
    lexer.BOOL,
    lexer.CHAR,
    lexer.COMPLEX,
    lexer.DOT,
    lexer.FIELD,
    lexer.IDENTIFIER,
    lexer.NUMBER,
    lexer.NIL,
    lexer.STRING,
    lexer.VARIABLE,
    "(",
)


_LOKI_NAMES = frozenset(FUNCTIONS)


@functools.lru_cache(maxsize=_CACHED)
def parse(text: str, functions: frozenset[str] = _LOKI_NAMES) -> Template:
    """A template that may call these functions, or a ParseError whose positions are offsets into `text`."""
    _Parser.check_text(text)
    return _Parser(text, lexer.tokenize(text), functions).template()


class _Parser(Cursor):
    language = lexer.LANGUAGE

    def __init__(self, text: str, tokens: list[Token], functions: frozenset[str]) -> None:
        super().__init__(text, tokens)
        self._functions = functions
        self._guard = DepthGuard(text, self.language)
        self._variables = ["$"]
        self._loops = 0
        self._defined: dict[str, Block] = {}

    def template(self) -> Template:
        start = self.token.start
        nodes: list[Node] = []
        while not self.at(END):
            if self._keyword_ahead() == "define":
                self._definition()
                continue
            ended = self._item(nodes)
            if ended is not None:
                self.fail(f"unexpected {{{{{ended}}}}}", self.previous.start, self.previous.end)
        return Template(self.text, Block(tuple(nodes), start), tuple(self._defined.items()))

    # -- blocks ----------------------------------------------------------------------------------------------------

    def _keyword_ahead(self) -> str:
        """The keyword of the action that starts here, if it has one."""
        if not self.at(lexer.OPEN):
            return ""
        ahead = 2 if self.peek().kind == lexer.SPACE else 1
        return self.peek(ahead).text if self.peek(ahead).kind == lexer.KEYWORD else ""

    def _block(self) -> tuple[Block, str]:
        """The nodes up to `end` or `else`, and which of both it was. After `else`, the cursor is before its rest."""
        start = self.token.start
        nodes: list[Node] = []
        while not self.at(END):
            ended = self._item(nodes)
            if ended is not None:
                return Block(tuple(nodes), start), ended
        self.fail("unexpected end of the template: an action has no {{end}}", self.token.start, self.token.end)

    def _item(self, nodes: list[Node]) -> str | None:
        """Add the next node. If it ends the block instead, say how."""
        token = self.take()
        if token.kind == lexer.TEXT:
            nodes.append(Text(token.text, token.start))
            return None
        self.accept(lexer.SPACE)
        if self.at(lexer.KEYWORD):
            return self._control(self.take(), nodes)
        start = self.token.start
        nodes.append(Action(self._pipe("command", lexer.CLOSE), start))
        return None

    def _control(self, word: Token, nodes: list[Node]) -> str | None:
        keyword = word.text
        if keyword == "end":
            self._close("end")
            return _END
        if keyword == "else":
            self.accept(lexer.SPACE)
            if not (self.at(lexer.KEYWORD) and self.token.text in ("if", "with")):
                self._close("else")
            return _ELSE
        if keyword in ("break", "continue"):
            self._close(f"{{{{{keyword}}}}}")
            if not self._loops:
                self.fail(f"{{{{{keyword}}}}} outside {{{{range}}}}", word.start, word.end)
            nodes.append(Break(word.start) if keyword == "break" else Continue(word.start))
        elif keyword in ("if", "with", "range"):
            nodes.append(self._branch(keyword))
        elif keyword == "template":
            nodes.append(self._invocation())
        elif keyword == "block":
            nodes.append(self._named_block())
        else:
            self.fail(f"unexpected <{keyword}> in command", word.start, word.end)
        return None

    def _close(self, context: str) -> None:
        self.accept(lexer.SPACE)
        self.expect(lexer.CLOSE, context)

    def _branch(self, keyword: str) -> Branch:
        self._guard.enter(self.token.start)
        declared = len(self._variables)
        pipe = self._pipe(keyword, lexer.CLOSE)
        self._loops += keyword == "range"
        body, ended = self._block()
        self._loops -= keyword == "range"
        otherwise = self._otherwise(keyword) if ended == _ELSE else None
        del self._variables[declared:]
        self._guard.leave()
        return Branch(keyword, pipe, body, otherwise, pipe.at)

    def _otherwise(self, keyword: str) -> Block:
        start = self.token.start
        if self.at(lexer.KEYWORD) and self.token.text == keyword and keyword != "range":
            self.take()
            return Block((self._branch(keyword),), start)
        if self.previous.kind != lexer.CLOSE:
            self.unexpected(f"the else of {keyword}", '"}}"')
        block, ended = self._block()
        if ended != _END:
            self.fail("expected end; found {{else}}", self.previous.start, self.previous.end)
        return block

    def _definition(self) -> None:
        self.take()
        self.accept(lexer.SPACE)
        self.take()
        name = self._template_name("define clause")[0]
        self._close("define clause")
        self._define(name, "define clause")

    def _named_block(self) -> Invocation:
        name, quoted, at = self._template_name("block clause")
        pipe = self._pipe("block clause", lexer.CLOSE)
        self._define(name, "block clause")
        return Invocation(name, quoted, pipe, at)

    def _define(self, name: str, context: str) -> None:
        """The body of a template, which sees none of the variables outside."""
        start = self.token.start
        self._guard.enter(start)
        variables, loops = self._variables, self._loops
        self._variables, self._loops = ["$"], 0
        body, ended = self._block()
        if ended != _END:
            self.fail(f"unexpected {{{{else}}}} in {context}", self.previous.start, self.previous.end)
        self._variables, self._loops = variables, loops
        self._guard.leave()
        known = self._defined.get(name)
        if known is None or _is_empty(known):
            self._defined[name] = body
        elif not _is_empty(body):
            self.fail(f"multiple definition of template {name!r}", start, self.previous.end)

    def _invocation(self) -> Invocation:
        name, quoted, at = self._template_name("template clause")
        self.accept(lexer.SPACE)
        pipe = None if self.accept(lexer.CLOSE) else self._pipe("template clause", lexer.CLOSE)
        return Invocation(name, quoted, pipe, at)

    def _template_name(self, context: str) -> tuple[str, str, int]:
        self.accept(lexer.SPACE)
        token = self.expect(lexer.STRING, context)
        return unquote(self.text, token, self.language), token.text, token.start

    # -- pipelines -------------------------------------------------------------------------------------------------

    def _pipe(self, context: str, end: str) -> Pipe:
        self.accept(lexer.SPACE)
        start = self.token.start
        self._guard.enter(start)
        variables, assigns = self._declarations(context)
        commands: list[Command] = []
        while True:
            self.accept(lexer.SPACE)
            if self.accept(end):
                break
            if not self.at(*_OPERANDS):
                self.unexpected(context)
            commands.append(self._command())
        if not commands:
            self.fail(f"missing value for {context}", start, self.previous.end)
        for stage, command in enumerate(commands[1:], 2):
            if isinstance(command.args[0], Bool | Dot | Nil | Number | String):
                self.fail(f"non executable command in pipeline stage {stage}", command.at, self.previous.start)
        self._guard.leave()
        return Pipe(tuple(commands), variables, assigns, start)

    def _declarations(self, context: str) -> tuple[tuple[Variable, ...], bool]:
        """The variables before `:=` or `=`."""
        found: list[Variable] = []
        while self.at(lexer.VARIABLE):
            after = self.peek(2) if self.peek().kind == lexer.SPACE else self.peek()
            if after.kind not in ("=", ":=", ","):
                break
            token = self.take()
            found.append(Variable((token.text,), token.start))
            self._variables.append(token.text)
            self.accept(lexer.SPACE)
            sign = self.take()
            self.accept(lexer.SPACE)
            if sign.kind != ",":
                return tuple(found), sign.kind == "="
            if context != "range" or len(found) > 1:
                self.fail(f"too many declarations in {context}", token.start, sign.end)
            if not self.at(lexer.VARIABLE, lexer.CLOSE, ")"):
                self.fail("range can only initialize variables", token.start, sign.end)
        return tuple(found), False

    def _command(self) -> Command:
        start = self.token.start
        args: list[Operand] = []
        while True:
            self.accept(lexer.SPACE)
            if self.at(*_OPERANDS):
                args.append(self._operand())
            if self.accept(lexer.SPACE):
                continue
            if not self.at(lexer.CLOSE, ")") and not self.accept("|"):
                self.unexpected("operand")
            break
        if not args:
            self.fail("empty command", start, self.token.end)
        return Command(tuple(args), start)

    def _operand(self) -> Operand:
        node = self._term()
        if not self.at(lexer.FIELD):
            return node
        start, path = self.token.start, []
        while field := self.accept(lexer.FIELD):
            path.append(field.text[1:])
        if isinstance(node, Field):
            return Field((*node.path, *path), start)
        if isinstance(node, Variable):
            return Variable((*node.path, *path), start)
        if isinstance(node, Bool | String | Number | Nil | Dot):
            self.fail(f"unexpected . after term {str(node)!r}", start, self.previous.end)
        return Chain(node, tuple(path), start)

    def _term(self) -> Operand:
        token = self.take()
        if token.kind == "(":
            return self._pipe("parenthesized pipeline", ")")
        if token.kind == lexer.IDENTIFIER:
            if token.text not in self._functions:
                self.fail(f'function "{token.text}" not defined', token.start, token.end)
            return Identifier(token.text, token.start)
        if token.kind == lexer.VARIABLE:
            if token.text not in self._variables:
                self.fail(f'undefined variable "{token.text}"', token.start, token.end)
            return Variable((token.text,), token.start)
        if token.kind == lexer.FIELD:
            return Field((token.text[1:],), token.start)
        if token.kind == lexer.STRING:
            return String(token.text, unquote(self.text, token, self.language), token.start)
        if token.kind == lexer.BOOL:
            return Bool(token.text == "true", token.start)
        if token.kind == lexer.DOT:
            return Dot(token.start)
        if token.kind == lexer.NIL:
            return Nil(token.start)
        return self._number(token)

    def _number(self, token: Token) -> Number:
        text = token.text
        try:
            if token.kind == lexer.CHAR:
                code = self._character(token)
                return Number(text, code, float(code), at=token.start)
            if text.endswith("i"):
                return _complex(text, token.start)
            return _real(text, token.start)
        except GoError as reason:
            self.fail(str(reason), token.start, token.end)

    def _character(self, token: Token) -> int:
        value = unquote(self.text, token, self.language)
        if len(value) != 1:
            raise GoError(f"malformed character constant: {token.text}")
        code = ord(value)
        return code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code


def _real(text: str, at: int) -> Number:
    is_float = re.search("[.eEpP]", text) is not None and not re.fullmatch("0[xX][^pP]*", text)
    try:
        value = parse_int(text, 0)
        return Number(text, value, float(value), is_float=is_float, at=at)
    except GoError:
        pass
    if text.isdecimal() and text[0] != "0" and int(text) < 1 << 64:
        # An unsigned integer, which no function takes.
        return Number(text, None, float(text), at=at)
    try:
        number = parse_float(text)
    except GoError:
        raise GoError(f'illegal number syntax: "{text}"') from None
    if not re.search("[.eEpP]", text):
        raise GoError(f'integer overflow: "{text}"')
    whole = int(number) if number == int(number) and INT_MIN <= number <= INT_MAX else None
    return Number(text, whole, number, is_float=is_float, at=at)


def _complex(text: str, at: int) -> Number:
    split = max(text.rfind("+", 1), text.rfind("-", 1))
    while split > 0 and text[split - 1] in "eEpP":
        split = max(text.rfind("+", 1, split), text.rfind("-", 1, split))
    real = parse_float(text[:split]) if split > 0 else 0.0
    value = complex(real, parse_float(text[max(split, 0) : -1]))
    plain = value.imag == 0
    whole = int(value.real) if plain and value.real == int(value.real) else None
    return Number(text, whole, value.real if plain else None, value, at=at)


def _is_empty(block: Block) -> bool:
    return all(isinstance(node, Text) and not node.text.strip() for node in block.nodes)
