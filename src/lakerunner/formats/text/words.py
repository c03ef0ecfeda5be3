"""The words of the line grammar: how loggers write times and levels. Regular expressions in RE2's syntax."""

from __future__ import annotations

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_WEEKDAY = "(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?"
_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9}|:\d{3})?"
_ZONES = "UTC|GMT|WET|WEST|CET|CEST|EET|EEST|MSK|BST|EST|EDT|CST|CDT|MST|MDT|PST|PDT|JST|KST|AEST|AEDT"
_ZONE = rf"(?:Z|\s?(?:{_ZONES})\b|\s?[+-]\d\d:?\d\d\b|[+-]\d\d\b)?"
ISO = rf"\d{{4}}[-/.]\d\d[-/.]\d\d(?:[T_-]|\s{{1,2}})(?:{_CLOCK}|\d\d:\d\d){_ZONE}"
#: Day, month name and year, with slashes in access logs: `16/Nov/2026:05:00:00 +0000`.
DAY_FIRST = rf"{_WEEKDAY}\d{{1,2}}[-/ ]{_MONTH}[-/ ]\d{{4}}[: ]{_CLOCK}{_ZONE}"
MONTH_FIRST = (
    rf"{_WEEKDAY}{_MONTH}\s+\d{{1,2}}(?:,? \d{{4}},? {_CLOCK}(?:\s[AP]M)?|\s{_CLOCK}(?:\s(?:{_ZONES}))?\s\d{{4}})"
)
#: Syslog's time, which has no year.
BSD = rf"{_MONTH}\s+\d{{1,2}}\s{_CLOCK}"
#: Times that hold a whole date, so they are trusted wherever they stand in a line.
DATED = f"(?:{ISO}|{DAY_FIRST}|{MONTH_FIRST})"
NUMBERS = rf"\d{{1,2}}[/.]\d{{1,2}}[/.](?:\d{{4}}|\d\d),? {_CLOCK}(?:\s[AP]M)?"
_COMPACT = r"\d{8}[T -]?\d\d:?\d\d:?\d\d(?:[.,:]\d{1,9})?Z?|\d{6}\s{1,2}\d{1,2}:?\d\d:?\d\d"
_DAY_OF_MONTH = rf"\d\d-\d\d {_CLOCK}|\d{{1,2}} {_MONTH} {_CLOCK}"
_EPOCH = r"1\d{9}(?:\.\d{1,9})?|1\d{12}|1\d{15}|1\d{18}"
#: Any time at the beginning of a line.
TIME = rf"(?:{DATED}|{BSD}|{NUMBERS}|{_COMPACT}|{_DAY_OF_MONTH}|{_CLOCK}{_ZONE}|(?:{_EPOCH})\b)"

#: Level names as they are written without brackets.
UPPER = (
    "(?:TRACE|DEBUG[1-5]?|INFORMATION|INFO|NOTICE|WARNING|WARN|ERROR|ERR|FATAL|CRITICAL|CRIT|ALERT|EMERGENCY|EMERG|"
    "SEVERE|CONFIG|FINEST|FINER|FINE|VERBOSE|DPANIC|PANIC|SUCCESS)"
)
#: Level names in any case, which brackets or a colon set off.
ANY = (
    r"(?i:trace\d?|debug|information|info|notice|note|warning|warn|error|err|fatal|critical|crit|alert|emergency|"
    r"emerg|severe|config|finest|finer|fine|verbose|dpanic|panic|success|system|vrb|dbg|dbug|inf|wrn|ftl|fail|trc|"
    r"trce|[diwef])"
)
#: Lower-case words that may stand for a level without any mark. `error` is not among them: sentences begin with it.
_BARE = "(?:trace|debug|info|notice|warning|warn)"
#: A level between other parts of a line: in brackets, in upper case, or in lower case and set off.
LEVEL = (
    rf"(?:[\[<(]\s*(?P<level>{ANY})\s*[\])>]:?|(?P<level_2>{UPPER})\b:?|(?P<level_3>{_BARE})\b:?|"
    rf"(?P<level_4>(?i:error|fatal|critical|information|debug|info|warn|warning|verbose))(?:\s*[|:\t]|\s\s))"
)
#: A logger's name that a colon ends: with a dot, slash, underscore or hump, or in lower case. `Listening: ` is none.
LOGGER = (
    r"(?:[A-Za-z_$][\w$-]*(?:(?:\.|::|/|#)[\w$<>-]+)+|[a-z_][\w-]*|"
    r"[A-Z][a-z\d]+(?:[A-Z][a-z\d]*)+|[A-Z]+[a-z\d]+[A-Z]\w*)"
)
