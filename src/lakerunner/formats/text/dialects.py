"""The line formats of common loggers, most specific first.

A *head* matches a whole line. A head with the group `rest` has found the time (and perhaps more); the *tails* then
take what follows. A group's name is the attribute that it becomes; `time`, `level`, `service` and `message` become the
columns of the row. `level_2` is another place for `level`. A dialect without a `message` keeps the line as the message.
"""

# ruff: noqa: E501  a pattern is easier to read on one line

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.formats.text.words import (
    ANY,
    BSD,
    DATED,
    DAY_FIRST,
    ISO,
    LEVEL,
    LOGGER,
    MONTH_FIRST,
    NUMBERS,
    TIME,
    UPPER,
)


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    pattern: str
    #: Of an envelope: the pattern for all lines once most lines match `pattern`.
    loose: str = ""


#: Level names without panic, with which Go begins the report of a crash.
_WORDS = UPPER.replace("|PANIC", "")
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PAIR = rf'[A-Za-z_][\w.-]*=(?:{_QUOTED}|[^\s"]\S*)'
_M = "(?P<message>.*)$"
#: After a time: an end of brackets, or one separator.
_GAP = r"^[\])>]?(?:\s*[;:|-](?:\s|$)|\s*,)?[\s|]*"
#: After a level: a separator, then perhaps more blanks.
_SEP = r"(?:\s*[-|:]\s|[|,])?\s*"
#: Before a level: thread, process or logger in brackets, or a number.
_LEAD = r"(?:(?:\[(?P<thread>[^\]]*)\]|\((?P<thread_2>[^)]*)\)|(?P<pid>\d+)\b)\s*[-|:]?\s*){0,2}"

#: Lines that wrap the line of another program, in the group `inner`.
ENVELOPES = (
    Dialect("cri", rf"(?s)^(?P<outer_time>{ISO}) (?P<stream>stdout|stderr) (?P<tag>[FP])(?::\S+)? (?P<inner>.*)$"),
    Dialect("docker compose", r"(?s)^(?P<service>[A-Za-z][\w.-]*)\s*\| (?P<inner>.*)$"),
    Dialect("kubectl prefix", r"(?s)^\[pod/(?P<pod>[^/\]]+)/(?P<service>[^\]]+)\] (?P<inner>.*)$"),
    Dialect("kubectl timestamps", rf'(?s)^(?P<outer_time>\d{{4}}-\d\d-\d\dT\S+Z) (?P<inner>[\[(]?(?:{DATED}).*|\{{".*|[IWEF]\d{{4}} \d\d:.*|\w+=.*\b(?:msg|level|lvl)=.*)$', r"(?s)^(?P<outer_time>\d{4}-\d\d-\d\dT\S+Z) ?(?P<inner>.*)$"),
)  # fmt: skip

HEADS = (
    Dialect("klog", rf"(?s)^(?P<level>[IWEFD])(?P<time>\d{{4}}(?:\d\d)? \d\d:\d\d:\d\d\.\d+)\s+(?P<thread>\d+)\s+(?P<source>[^\s\]]+:\d+)(?:\]| ⋮)\s?{_M}"),
    Dialect("syslog 5424", rf"(?s)^(?:\d+ )?<(?P<pri>\d{{1,3}})>1 (?P<time>\S+) (?P<host>\S+) (?P<service>\S+) (?P<pid>\S+) (?P<msgid>\S+) (?P<structured>-|(?:\[(?:[^\]\"\\]|\\.|{_QUOTED})*\])+)(?: \x{{FEFF}}?| ?$){_M}"),
    Dialect("syslog", rf"(?s)^(?:<(?P<pri>\d{{1,3}})>)?(?P<time>{BSD}(?: \d{{4}})?|{MONTH_FIRST})\s+(?:(?P<host>[^\s:\[]+)\s+)?(?P<service>[^\s:\[\]]+)(?:\[(?P<pid>[^\]]*)\])?:(?:\s|$){_M}"),
    Dialect("syslog, no tag", rf"(?s)^(?:<(?P<pri>\d{{1,3}})>)?(?P<time>{BSD})\s+(?P<host>[\w.-]*[\w-])\s+{_M}"),
    Dialect("syslog, ISO time", rf"(?s)^<(?P<pri>\d{{1,3}})>(?P<time>{ISO})\s+(?P<host>\S+)\s+(?P<service>[^\s:\[\]]+)(?:\[(?P<pid>[^\]]*)\])?:\s?{_M}"),
    Dialect("syslog, priority alone", rf"(?s)^<(?P<pri>\d{{1,3}})>(?:(?P<service>[^\s:\[\]<>]+)(?:\[(?P<pid>[^\]]*)\])?:\s)?{_M}"),
    Dialect("access", r'(?s)^(?:(?P<host>[^\s:]+(?::\d+)?) )?(?P<client>\S+) (?P<identity>\S+) (?P<user>[^\[]+?) \[(?P<time>\d\d/\w{3}/\d{4}[: ][\d:.]+(?: [+-]\d{4})?)\] "(?:(?P<method>[A-Z]+) (?P<path>(?:[^"\\\s]|\\.)*)(?: (?P<protocol>[^"\s]*))?|[^"]*)" (?P<status>\d{3}|-) (?P<bytes>\d+|-)(?: "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<user_agent>(?:[^"\\]|\\.)*)")?'),
    Dialect("django server", rf'(?s)^\[(?P<time>{DAY_FIRST})\] "(?P<method>[A-Z]+) (?P<path>\S+)[^"]*" (?P<status>\d{{3}}) (?P<bytes>\d+|-)'),
    Dialect("envoy access", rf'(?s)^\[(?P<time>{ISO})\] "(?P<method>[A-Z]+) (?P<path>\S+) (?P<protocol>[^"]*)" (?P<status>\d+) (?P<flags>\S+)'),
    Dialect("load balancer", r'(?s)^(?:https?|h2|grpcs?|wss?) (?P<time>\d{4}-\d\d-\d\dT\S+Z) (?P<elb>\S+) (?P<client>\S+) (?P<target>\S+) \S+ \S+ \S+ (?P<status>\S+) (?P<target_status>\S+) (?P<received_bytes>\d+) (?P<bytes>\d+) "(?P<method>\S+) (?P<path>\S+)[^"]*"'),
    Dialect("classic load balancer", r'(?s)^(?P<time>\d{4}-\d\d-\d\dT\S+Z) (?P<elb>\S+) (?P<client>[\d.]+:\d+) (?P<target>\S+) \S+ \S+ \S+ (?P<status>\S+) (?P<target_status>\S+) (?P<received_bytes>\d+) (?P<bytes>\d+) "(?P<method>\S+) (?P<path>\S+)[^"]*"'),
    Dialect("ruby", rf"(?s)^[A-Z], \[(?P<time>[^\s\]]+)\s+#(?P<pid>\d+)\]\s+(?P<level>[A-Z]+) -- (?P<service>[^:]*):\s?{_M}"),
    Dialect("redis", rf"(?s)^(?:(?P<pid>\d+):(?P<role>[A-Z])|\[(?P<pid_2>\d+)\]) (?P<time>\d\d \w{{3}} (?:\d{{4}} )?\d\d:\d\d:\d\d\.\d+) (?P<mark>[.*#-]) {_M}"),
    Dialect("nest", rf"(?s)^\[\w+\] (?P<pid>\d+)\s+- (?P<time>{TIME})\s+(?P<level>LOG|WARN|ERROR|DEBUG|VERBOSE|FATAL) (?:\[(?P<logger>[^\]]*)\] )?{_M}"),
    Dialect("logcat", rf"(?s)^(?P<time>(?:\d{{4}}-)?\d\d-\d\d \d\d:\d\d:\d\d\.\d+)\s+(?P<pid>\d+)\s+(?P<thread>\d+)\s+(?P<level>[VDIWEFA]) (?P<logger>[^:]*?)\s*: {_M}"),
    Dialect("audit", r"(?s)^(?:node=(?P<host>\S+) )?type=(?P<type>\w+) msg=audit\((?P<time>\d+\.\d+):(?P<serial>\d+)\)"),
    Dialect("geth", rf"(?s)^(?P<level>{UPPER})\s*\[(?P<time>\d\d-\d\d\|[\d:.]+)\]\s+{_M}"),
    Dialect("env_logger", rf"(?s)^\[(?P<time>{ISO})\s+(?P<level>{UPPER})\s+(?P<logger>[\w:-]+)\]\s{_M}"),
    Dialect("tornado", rf"(?s)^\[(?P<level>[DIWEC]) (?P<time>{TIME}) (?P<logger>[\w:.-]+)\]\s+{_M}"),
    Dialect("level, thread, time", rf"(?s)^\s?\[?(?P<level>{UPPER})\s*\]?\s+\[(?P<thread>[^\]]*)\]\s+(?P<time>{ISO})\s+(?:(?P<source>\S+:\d+)\s+)?(?:-\s+)?{_M}"),
    Dialect("level, time", rf"(?s)^[\[<(]?\s?(?P<level>{ANY})\s*[\])>]?[:,|-]?\s*[\[(]?(?P<time>{DATED}|{NUMBERS})(?P<rest>(?:[\])>,:;|\s-].*)?)$"),
    Dialect("macos unified", rf"(?s)^(?P<time>{ISO})\s+0x(?P<thread>[0-9a-f]+)\s+(?P<level>Default|Info|Debug|Error|Fault|Activity)\s+0x[0-9a-f]+\s+(?P<pid>\d+)\s+\d+\s+(?P<service>[^:]+):\s+{_M}"),
    # The forms are tried in two steps, because a regular expression of all of them costs five times as much.
    Dialect("ISO time", rf"(?s)^[\[(<]?(?P<time>{ISO})(?P<rest>(?:[\])>,:;|\s-].*)?)$"),
    Dialect("time", rf"(?s)^[\[(<]?(?P<time>{TIME})(?P<rest>(?:[\])>,:;|\s-].*)?)$"),
    Dialect("slf4j", rf"(?s)^(?:\d+\s+)?\[(?P<thread>[^\]]+)\]\s+(?P<level>{UPPER})\s+(?P<logger>[\w.$]+)\s+(?:\S+\s+)?-\s+{_M}"),
    Dialect("logrus terminal, pairs", rf"(?s)^(?P<level>TRAC|TRACE|DEBU|DEBUG|INFO|WARN|ERRO|ERROR|FATA|FATAL|PANI|PANIC)\[\d+\]\s+(?P<message>.*?)\s+(?P<pairs>{_PAIR}(?:\s+{_PAIR})*)\s*$"),
    Dialect("logrus terminal", rf"(?s)^(?P<level>TRAC|TRACE|DEBU|DEBUG|INFO|WARN|ERRO|ERROR|FATA|FATAL|PANI|PANIC)\[\d+\]\s+{_M}"),
    Dialect("dotnet console", r"(?s)^(?P<level>trce|dbug|info|warn|fail|crit): (?P<logger>[A-Za-z_][\w.+`<>]*)\[(?P<event_id>-?\d+)\](?P<message>.*)$"),
    Dialect("python basic", rf"(?s)^(?P<level>{UPPER}):(?P<logger>[\w.-]+):{_M}"),
    Dialect("level and colon", rf"(?s)^(?P<level>(?i:{_WORDS}|silly|http))\s?(?::\s+|\t+){_M}"),
    Dialect("level in brackets", rf"(?s)^[\[<](?P<level>{ANY})\s*[\]>]:?\s+{_M}"),
    Dialect("level", rf"(?s)^(?P<level>{UPPER})(?:\s*[-|]\s+|\s+){_M}"),
)  # fmt: skip

#: Heads of lines that hold a time somewhere else. They begin a record only where the line is no continuation.
EMBEDDED = (
    Dialect("time within", rf"(?s)^.{{0,160}}?(?:[\s\[(\"=|,]|^)(?P<time>{DATED})"),
)  # fmt: skip

TAILS = (
    Dialect("spring", rf"(?s)^\s+(?P<level>{UPPER})\s+(?P<pid>\d+)\s+---\s+(?:\[(?P<service>[^\]]*)\]\s+)?\[(?P<thread>[^\]]*)\]\s+(?:\[(?P<correlation>[^\]]*)\]\s+)?(?P<logger>\S+)\s*:(?:\s|$){_M}"),
    Dialect("spring, traced", rf"(?s)^\s+(?P<level>{UPPER})\s+\[(?P<service>[^,\]]*),(?P<trace_id>[0-9a-f]*),(?P<span_id>[0-9a-f]*)(?:,[^\]]*)?\]\s+(?P<pid>\d+)\s+---\s+\[(?P<thread>[^\]]*)\]\s+(?P<logger>\S+)\s*:(?:\s|$){_M}"),
    Dialect("postgresql on rds", rf"(?s)^:(?P<client>[^:]*):(?P<user>[^@:]*)@(?P<database>[^:]*):\[(?P<pid>\d+)\]:(?P<level>[A-Z]+\d?):\s+{_M}"),
    Dialect("postgresql", rf"(?s)^\s+\[(?P<pid>\d+)(?:-\d+)?\](?::? \[\d+-\d+\])?(?:\s+(?:user=)?(?P<user>[^\s@,]*)[@,](?:db=)?(?P<database>[^\s,]*)\S*)?\s+(?P<level>LOG|DEBUG[1-5]?|INFO|NOTICE|WARNING|ERROR|FATAL|PANIC|STATEMENT|DETAIL|HINT|CONTEXT|QUERY|LOCATION):\s+{_M}"),
    Dialect("nginx error", rf"(?s)^\s+\[(?P<level>\w+)\]\s+(?P<pid>\d+)#(?P<thread>\d+):\s+{_M}"),
    Dialect("apache error", rf"(?s)^\]\s+\[(?:(?P<module>[\w.-]*):)?(?P<level>emerg|alert|crit|error|warn|notice|info|debug|trace\d)\](?:\s+\[pid (?P<pid>\d+)(?::tid (?P<thread>\d+))?\])?(?:\s+\[client (?P<client>[^\]]*)\])?\s+{_M}"),
    Dialect("mysql", rf"(?s)^\s+(?P<thread>\d+)\s+\[(?P<level>(?i:system|error|warning|note|info))\](?:\s+\[(?P<code>MY-\d+)\]\s+\[(?P<subsystem>[^\]]+)\])?\s+{_M}"),
    Dialect("clickhouse", rf"(?s)^\s+\[\s*(?P<thread>\d+)\s*\]\s+\{{(?P<query_id>[^}}]*)\}}\s+<(?P<level>\w+)>\s+(?P<logger>[^:]+(?:::[^:]+)*):\s+{_M}"),
    Dialect("mongodb", rf"(?s)^\s+(?P<level>[FEWID])\d?\s+(?P<component>[A-Z_]+|-)\s+\[(?P<thread>[^\]]*)\]\s{_M}"),
    Dialect("telegraf", rf"(?s)^\s+(?P<level>[DIWEF])!\s+(?:\[(?P<logger>[\w.:-]+)\]\s+)?{_M}"),
    Dialect("tensorflow", rf"(?s)^:\s+(?P<level>[DIWEF])\s+(?P<source>\S+:\d+)\]\s+{_M}"),
    Dialect("structlog", rf"(?s)^\s+\[(?P<level>[a-z]+)\s+\]\s(?P<message>.*?)\s+(?:\[(?P<logger>[\w.]+)\]\s+)?(?P<pairs>{_PAIR}(?:\s+{_PAIR})*)\s*$"),
    Dialect("celery", rf"(?s)^:\s+(?P<level>{UPPER})/(?P<process>[^\]]+)\]\s+{_M}"),
    Dialect("kafka", rf"(?s)^\]\s+(?P<level>{UPPER})\s+(?P<message>.*?)\s+\((?P<logger>[A-Za-z_][\w$]*(?:\.[\w$]+)+)\)$"),
    Dialect("flask", rf"(?s)^\]\s+(?P<level>{UPPER}) in (?P<logger>[\w.]+): {_M}"),
    Dialect("airflow", rf"(?s)^\]\s+\{{(?P<source>[^}}]+:\d+)\}}\s+(?P<level>{UPPER})\s+-\s+{_M}"),
    Dialect("monolog", rf"(?s)^\]\s+(?P<logger>[\w-]+)\.(?P<level>{UPPER}):\s+{_M}"),
    Dialect("elasticsearch", rf"(?s)^\]\s*(?:\[(?P<thread>\d+)\]\s*)?\[(?P<level>{ANY})\s*\]\s*\[(?P<logger>[\w.$/-]+)\s*\]\s*{_M}"),
    Dialect("gunicorn", rf"(?s)^\]\s*\[(?P<pid>\d+)\]\s*\[(?P<level>{ANY})\s*\]\s*{_M}"),
    Dialect("python", rf"(?s)^\s+-\s+(?P<logger>\S+)\s+-\s+(?P<level>{UPPER})\s+-\s+{_M}"),
    Dialect("loguru", rf"(?s)^\s*\|\s*(?P<level>[A-Z]+)\s*\|\s*(?P<source>\S+:\S+:\d+)\s+-\s{_M}"),
    Dialect("nlog", rf"(?s)^\|\s*(?P<level>{ANY})\s*\|(?P<logger>[^|]*)\|{_M}"),
    Dialect("php", rf"(?s)^\]\s+PHP (?P<level>Notice|Warning|Fatal error|Parse error|Deprecated):\s+{_M}"),
    Dialect("minecraft", rf"(?s)^\]\s*\[(?P<thread>[^\]/]*)/(?P<level>{UPPER})\]:?\s+{_M}"),
    Dialect("pino-pretty", rf"(?s)^\]\s+(?P<level>{UPPER})\s*(?:\((?:(?P<service>[^/()]+)/)?(?P<pid>\d+)(?: on (?P<host>[^)]*))?\))?:\s+{_M}"),
    Dialect("etcd", rf"(?s)^\s+(?P<level>[DIWEFNC]) \| (?P<logger>[\w/.-]+): {_M}"),
    Dialect("home assistant", rf"(?s)^\s+(?P<level>{UPPER})\s+\((?P<thread>[^)]*)\)\s+\[(?P<logger>[^\]]*)\]\s+{_M}"),
    Dialect("phoenix", rf"(?s)^\s+(?P<metadata>(?:\w+=\S+\s+)+)\[(?P<level>{ANY})\]\s+{_M}"),
    Dialect("sql server", rf"(?s)^\s+(?P<source>Server|Logon|Backup|spid\d+s?)\s{{2,}}{_M}"),
    Dialect("lambda", rf"(?s)^\t(?P<request_id>{_UUID}|undefined)\t(?P<level>{UPPER})\t{_M}"),
    Dialect("request", rf"(?s)^\t(?P<request_id>{_UUID})\t{_M}"),
    Dialect("syslog, ISO time", rf"(?s)^\s+(?P<host>[\w.:-]+)\s+(?P<service>[^\s:\[\]]+)\[(?P<pid>\d+)\]:\s{_M}"),
    Dialect("syslog, well-known program", rf"(?s)^\s+(?P<host>[\w.-]+)\s+(?P<service>kernel|systemd|sudo|su|cron|CRON|sshd|dockerd|containerd|kubelet|NetworkManager|rsyslogd|haproxy|nginx|postfix/\w+):\s{_M}"),
    Dialect("program", rf"(?s)^\s+(?P<service>[A-Za-z][\w.-]*)\[(?P<process>[\w.-]+)\]:\s+{_M}"),
    Dialect("tracing", rf"(?s)^\s+(?P<level>{UPPER})\s+(?:ThreadId\((?P<thread>\d+)\)\s+)?(?P<spans>(?:[\w-]+\{{[^}}]*\}}:)*)\s*(?P<logger>[a-z_]\w*(?:::\w+)*):\s+(?:(?P<source>[\w./-]+\.rs:\d+):\s+)?{_M}"),
    Dialect("level, closing bracket", rf"(?s)^\s+(?P<level>{ANY})\s*\]\s*{_M}"),
    Dialect("django", rf"(?s)^\s+(?P<logger>\w+)\s+(?P<pid>\d+)\s+(?P<thread>\d{{3,}})\s+{_M}"),
    Dialect("openstack, odoo", rf"(?s)^\s+(?P<pid>\d+)\s+(?P<level>{UPPER})\s+(?:(?P<database>[\w?-]+)\s+)?(?P<logger>[a-z_]\w*(?:\.\w+)+)(?::\s+|\s+|$){_M}"),
    Dialect("colons", rf"(?s)^:\s?(?P<level>{UPPER}):(?:(?P<logger>[\w.-]+):)?\s?{_M}"),
    Dialect("jboss", rf"(?s){_GAP}{LEVEL}\s+\[(?P<logger>\w+(?:\.[\w$]+)+)\]\s+(?:\((?P<thread>[^)]*)\)\s+)?(?:-\s+)?{_M}"),
    Dialect("level, source, tab", rf"(?s)^\t(?P<level>{ANY})\t(?P<source>[\w./@-]+:\d+)\t{_M}"),
    Dialect("level, logger, tab", rf"(?s)^\t(?P<level>{ANY})\t(?P<logger>[A-Za-z_][\w./-]*(?: [\w./-]+)?)\t(?:(?P<source>[\w./@-]+\.go:\d+)\t)?(?P<message>[^{{].*)$"),
    Dialect("level, thread, logger", rf"(?s){_GAP}{_LEAD}{LEVEL}{_SEP}(?:(?P<pid_2>\d+)\s+)?\[(?P<thread_3>[^\]]*)\]\s+(?P<logger>[\w.$]*[\w$])\s*(?:-|:)\s+{_M}"),
    Dialect("level, thread, source", rf"(?s){_GAP}{_LEAD}{LEVEL}{_SEP}\[(?P<thread_3>[^\]]*)\]\s+(?P<logger>[\w.$]*[\w$])\s*\((?P<source>[^)]*)\)\s*(?:-|:)\s+{_M}"),
    Dialect("level, thread, method", rf"(?s){_GAP}{_LEAD}{LEVEL}{_SEP}\[(?P<thread_3>[^\]]*)\]\s+(?P<logger>[a-z]\w*(?:\.[\w$<>]+){{2,}})\s+{_M}"),
    Dialect("level, thread, dash", rf"(?s){_GAP}{_LEAD}{LEVEL}{_SEP}\[(?P<thread_3>[^\]]*)\]\s+-\s+{_M}"),
    Dialect("level, logger, dash", rf"(?s){_GAP}{_LEAD}{LEVEL}{_SEP}\[?(?P<logger>[A-Za-z_$][\w.$:/@-]*)\]?\s+(?:\[(?P<context>[^\]]*)\]\s+)?[-–]\s+{_M}"),
    Dialect("level, logger, bar", rf"(?s){_GAP}{_LEAD}{LEVEL}\s*\|\s*(?P<logger>[A-Za-z_$][\w.$:/@-]*)\s*\|\s*{_M}"),
    Dialect("level, logger, colon", rf"(?s){_GAP}{_LEAD}{LEVEL}{_SEP}(?P<logger>{LOGGER})(?:\[\d+\])?\s*:\s+{_M}"),
    Dialect("level", rf"(?s){_GAP}{_LEAD}{LEVEL}{_SEP}{_M}"),
    Dialect("logger, level", rf"(?s){_GAP}\[?(?P<logger>\w[\w-]*(?:[./_:-]\w+)+)\]?\s*[-|:]?\s+\[?(?P<level>{UPPER})\]?\s*[-|:]?\s+{_M}"),
    Dialect("name, level", rf"(?s)^\s+(?:\[(?P<logger>[^\]]+)\]|(?P<logger_2>[a-z_][\w.-]*|\w+:):?)\s+(?P<level>{UPPER}):?\s+{_M}"),
    Dialect("message", rf"(?s){_GAP}{_M}"),
)  # fmt: skip

_FIELDS_DIRECTIVE = r"(?m)^#(?:Fields: |fields\t)(.+)$"


def w3c_dialect(text: str) -> Dialect | None:
    """Return the dialect of a log that names its fields itself: W3C's extended format (IIS, CloudFront), and Zeek's.

    >>> w3c_dialect("#Fields: date time cs-uri(X)").pattern
    '^(?P<time>\\\\S+\\\\s\\\\S+)\\\\s(?P<cs_uri_X_>\\\\S+)'
    """
    directive = re.search(_FIELDS_DIRECTIVE, text)
    if directive is None:
        return None
    names = [re.sub(r"\W", "_", name) for name in directive[1].split()]
    if len(names) < 2 or len(set(names)) < len(names) or any(name[0].isdigit() for name in names):
        return None
    groups = [f"(?P<{name}>\\S+)" for name in names]
    if names[:2] == ["date", "time"]:
        groups[:2] = ["(?P<time>\\S+\\s\\S+)"]
    return Dialect("w3c", "^" + "\\s".join(groups))
