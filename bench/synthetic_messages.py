"""The messages that every contender stores: an agent's conversation, generated from a seed, equal on every machine.

A step is a user message and an assistant message (at times a tool call and its result) in OpenAI's shape, about 2.3 KB
once encoded. Words are drawn with the skew of real prose, mixed with numbers, identifiers, paths, code and the
typography that models like to write, so that one step compresses about as well as real messages do (zstd level 3: close
to half). Random bytes would understate compression, repeated text would overstate it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

Message = dict[str, Any]

_COMMON = (
    "the to a of and in is that it for you this with we on as be are not if or can from by at so an have will but "
    "which when then your there has was they all one more only should before after each into them our use what its "
    "does how no also just than now any first here two some would could where make need same still"
)
_TOPIC = (
    "agent branch build cache call change check client code column commit config connection context copy count crash "
    "cursor data deploy directory disk document draft edge encode engine entry error event failure field file filter "
    "flag folder format function gateway graph handle header history index input invoice item job journal key label "
    "latency layer length limit line list loader lock log loop margin market memory merge message method migration "
    "model module monitor network node number object offset order output owner package page parser patch path payload "
    "plan policy pool port prefix price process prompt proxy query queue range rate reader record region release "
    "remote report request response result retry review role route row rule runner schedule schema scope script "
    "search segment sender server service session shard signal snapshot socket source stage state step storage "
    "stream string summary supplier switch symbol table target task team template test thread ticket timeout token "
    "tool trace traffic transfer trigger type update user value variable vendor version volume warning window worker "
    "writer zone accept adapt add agree align allow answer apply arrive assign avoid become begin believe belong "
    "break bring calculate carry cause choose clean close collect combine compare complete confirm consider contain "
    "continue convert correct cover create cut decide define delay delete depend describe detect differ discover "
    "divide double drop enable ensure estimate examine exceed expect explain explore extend fail fetch fix follow "
    "forget gather generate give grow guess happen help hold ignore improve include increase inspect install join "
    "keep know launch lead learn leave load look lose maintain manage map mark match measure mention miss move name "
    "notice observe open pass pause perform pick place prefer prepare prevent print produce protect prove provide "
    "pull push put raise reach read rebuild recover reduce refer refuse remember remove rename repeat replace reply "
    "require reset resolve restore return reveal save scan select send separate serve set share show skip solve sort "
    "split start stay stop store suggest support suppose take tell think track travel try turn understand verify "
    "wait want warn watch wonder work wrap write able average bad basic blank brief bright broad broken busy careful "
    "certain cheap clear cold common complex cool correct current daily damaged dark deep different difficult direct "
    "distant dry early easy empty exact extra fair false famous fast fine firm flat foreign free fresh full general "
    "gentle good great half hard heavy hidden high hollow honest idle important internal large last late light "
    "likely linear local long loose loud low main major minor missing modern narrow near neat new next normal old "
    "open ordinary original outer partial plain possible previous private probable proper public quick quiet random "
    "rare raw ready real recent regular related rough round safe serious shallow sharp short silent similar simple "
    "single slow small smooth soft solid special stable stale steady strange strict strong sudden sure tall thick "
    "thin tight tiny total true typical unique unusual upper useful usual vague valid visible warm weak whole wide "
    "yesterday tomorrow again almost already although anyway apart around away because below besides between beyond "
    "during either elsewhere enough especially even eventually exactly finally however indeed instead later maybe "
    "meanwhile mostly nearly never nevertheless often otherwise perhaps probably quite rather roughly since slightly "
    "somewhere soon therefore though throughout together toward under unless until usually whether while within "
    "without Berlin Lisbon Osaka Nairobi Toronto Monday Thursday January October kilobyte second minute percent"
)
# Words whose numbers are equal are sorted by themselves: the order of a set is another one in every process.
_STEMS = sorted(set(_TOPIC.split()), key=lambda word: ((len(word) * 7919 + sum(map(ord, word))) % 1009, word))
# Each stem in several forms: with a few hundred words only, a trained zstd dictionary would hold all of them.
# Measured beside README files and other Markdown cut into the same message shape: zstd level 3 leaves 0.40 to 0.47 of
# those and 0.48 of these messages; with a 16 KB dictionary 0.31 to 0.39, and 0.37 of these. So compression alone is a
# little worse here than on real text, and the gain of a dictionary (22 %) is at the upper end of its gain there.
_FORMS = ("{}", "{}s", "{}ed", "{}ing", "re{}", "un{}", "{}er", "{}ly", "over{}", "{}able", "pre{}", "{}ment")
_WORDS = _COMMON.split() + [form.format(stem) for form in _FORMS for stem in _STEMS]
_WEIGHTS = list(accumulate(1 / (rank + 6) ** 0.82 for rank in range(len(_WORDS))))
_JOINS = (", ", ", ", "; ", ": ", " — ", " – ", " → ", ", ", " (", " “", " ")
_ENDS = (". ", ". ", ". ", ".\n", "? ", "! ", "… ", ".\n\n", ":\n- ", ".\n- ", ".\n\n**")
_TOOLS = ("read_file", "search_code", "run_tests", "query_orders", "fetch_page", "write_file", "list_tickets")
_ACCENTS = (
    "naïve",
    "café",
    "façade",
    "Zürich",
    "São Paulo",
    "coördinate",
    "résumé",
    "≈",
    "≥ 2×",
    "µs",
    "✅",
    "“quoted”",
)


class MessageGenerator:
    """Draws words, sentences and messages from one seeded random source."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._topic: list[str] = []
        self.new_topic()

    def new_topic(self) -> None:
        """Choose the words, phrases and paths that the next messages repeat."""
        rng = self._random
        words = rng.sample(_WORDS, 30)
        phrases = [" ".join(rng.choices(_WORDS, cum_weights=_WEIGHTS, k=rng.randrange(2, 5))) for _ in range(12)]
        paths = [f"{rng.choice(_WORDS)}/{rng.choice(_WORDS)}_{rng.choice(_WORDS)}.py" for _ in range(2)]
        self._topic = words + phrases + paths

    def _identifier(self, length: int) -> str:
        return "".join(self._random.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", k=length))

    def _word(self) -> str:
        rng, roll = self._random, self._random.random()
        if roll < 0.030:
            return str(rng.randrange(10 ** rng.randrange(1, 6)))
        if roll < 0.042:
            return f"`{rng.choice(_WORDS)}_{rng.choice(_WORDS)}()`"
        if roll < 0.050:
            return f"{self._topic[-1]}:{rng.randrange(900)}"
        if roll < 0.058:
            return rng.choice(_ACCENTS)
        if roll < 0.46:
            return rng.choice(self._topic)
        return rng.choices(_WORDS, cum_weights=_WEIGHTS)[0]

    def prose(self, size: int) -> str:
        """Text of about `size` characters."""
        rng, parts, length = self._random, [], 0
        while length < size:
            words = [self._word() for _ in range(rng.randrange(4, 12))]
            sentence = " ".join(words)
            if rng.random() < 0.45:
                more = " ".join(self._word() for _ in range(rng.randrange(3, 8)))
                join = rng.choice(_JOINS)
                sentence += join + more + {" (": ")", " “": "”"}.get(join, "")
            sentence = sentence[0].upper() + sentence[1:] + rng.choice(_ENDS)
            parts.append(sentence)
            length += len(sentence)
        return "".join(parts).rstrip("*- \n:")

    def user(self, size: int) -> Message:
        return {"role": "user", "content": self.prose(size), "id": f"msg_{self._identifier(24)}"}

    def assistant(self, size: int) -> Message:
        return {"role": "assistant", "content": self.prose(size), "id": f"msg_{self._identifier(24)}"}

    def _assignment(self) -> str:
        rng = self._random
        return f"{rng.choice(self._topic)} = {rng.choice(_WORDS)}({self._word()}, {self._word()})"

    def tool_call_and_result(self, size: int) -> list[Message]:
        rng, call, tool = self._random, f"call_{self._identifier(24)}", self._random.choice(_TOOLS)
        arguments = (
            f'{{"query": "{self.prose(60)}", "limit": {rng.randrange(5, 200)}, "path": "src/{rng.choice(_WORDS)}"}}'
        )
        path = self._topic[-1]
        lines = "\n".join(
            f"{path}:{number * 7 + rng.randrange(7)}: {self._assignment()}"
            for number in range(max(1, (size - 540) // 56))
        )
        function = {"name": tool, "arguments": arguments}
        asked = self.prose(180)
        return [
            {"role": "assistant", "content": asked, "id": f"msg_{self._identifier(24)}",
             "tool_calls": [{"id": call, "type": "function", "function": function}]},
            {"role": "tool", "content": lines, "id": f"msg_{self._identifier(24)}", "tool_call_id": call},
        ]  # fmt: skip

    def step(self, size: int = 2300) -> list[Message]:
        """Two messages that encode to about `size` bytes together."""
        text = size - 330
        self.new_topic()
        if self._random.random() < 0.25:
            return self.tool_call_and_result(text)
        asked = int(text * self._random.uniform(0.08, 0.3))
        return [self.user(asked), self.assistant(text - asked)]


def make_conversation(steps: int, *, seed: int = 7, size: int = 2300) -> list[list[Message]]:
    """`steps` steps of two messages each."""
    generator = MessageGenerator(seed)
    return [generator.step(size) for _ in range(steps)]


def make_messages(count: int, *, seed: int = 11, size: int = 1150) -> Iterator[Message]:
    """Single messages, for chat sessions."""
    generator = MessageGenerator(seed)
    for number in range(count):
        generator.new_topic()
        yield generator.user(size // 3) if number % 2 == 0 else generator.assistant(size + size // 2)
