"""Realtime sessions that change hands, made up from a seed: clients of several keys and networks, all open at once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable

from helpers.duplex_session import created, done, duplex, hit, keyed, resume
from helpers.scripted_tap import REALTIME, Clock, Step, answers, disconnect, opening, says, scope_of
from omniwatch import events as ev
from omniwatch.tap.conversation import Conversation
from omniwatch.tap.ear import Ear
from omniwatch.tap.observer import STREAM_HEADER, TapContext
from omniwatch.tap.realtime import RealtimeObserver
from omniwatch.tap.sessions import Sessions

KEYS = ("a", "b", None)
ADDRESSES = ("192.0.2.7", "192.0.2.8", "2001:db8::7", "2001:db8::8", "2001:db8:0:1::7")
MAX_LEFT = 4
STEPS = 60


class Stage:
    """A tap's state and the events that come of it."""

    def __init__(self, max_left: int | None = None) -> None:
        self.clock = Clock()
        self.events: list[ev.Event] = []
        ear = Ear("sent", self.events.append, clock=self.clock, monotonic=self.clock)
        self.context = TapContext(self.events.append, self.clock, self.clock, ear)
        if max_left is not None:
            self.context.sessions = Sessions(max_left)

    def find(self, session: str) -> Conversation | None:
        return self.context.sessions.find(session)


class Client:
    """One connection, accepted."""

    def __init__(
        self, stage: Stage, key: str | None = None, address: str = ADDRESSES[0], query: str = ""
    ) -> None:
        self.stage = stage
        self.key, self.address = key, address
        scope = scope_of(
            REALTIME, client=(address, 40_000), query_string=query.encode(), **{"headers": [], **keyed(key)}
        )
        self.observer = RealtimeObserver(scope, stage.context)
        self.session = ""
        """The latest one that the server named."""
        self.is_open = True
        self.is_lost = False
        """Whether the server carries its session by another connection."""
        self.has_begun = self.is_asking = False
        self.ids = [query.partition("=")[2]]
        """Under which its stream can be reported on."""
        self.goes(*opening())

    @property
    def stream(self) -> str:
        return self.observer.stream_events.name

    def goes(self, *steps: Step) -> list[ev.Event]:
        """Take messages; return the events that come of them."""
        before = len(self.stage.events)
        for step in steps:
            self._goes(step)
        return self.stage.events[before:]

    def _goes(self, step: Step) -> None:
        said = json.loads(step.message.get("text", "{}")).get("type", "")
        before = len(self.stage.events)
        if step.direction == "in":
            self.is_asking |= said == "session.resume" and not self.has_begun
            self.observer.received(step.message)
        else:
            told = self.observer.sent(step.message)
            self.ids += [value.decode() for name, value in told.get("headers", ()) if name == STREAM_HEADER]
            self.is_asking &= said not in ("session.resumed", "session.resync_required", "error")
        self.has_begun |= any(isinstance(event, ev.StreamStart) for event in self.stage.events[before:])

    def begins(self, session: str) -> list[ev.Event]:
        self.session = session
        return self.goes(created(0, session))

    def takes_up(self, session: str, asked: str | None = None) -> list[ev.Event]:
        """Ask for a session, and have the server take `session` up."""
        self.session = session
        return self.goes(resume(0, session=asked or session), answers(0, **hit(session)))

    def leaves(self) -> list[ev.Event]:
        self.is_open = False
        return self.goes(disconnect(0))


class Play:
    """One stage, many clients, an honest server among clients that lie. Raises AssertionError."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self.dice = random.Random(seed)
        self.counts = counts
        self.stage = Stage(MAX_LEFT)
        self.clients: list[Client] = []
        self.owners: dict[str, str | None] = {}
        """Whose each stream is: of the key that began it."""
        self.keys: dict[str, str | None] = {}
        """Whose each session is."""
        self.carriers: dict[str, Client] = {}
        """By which connection the server carries each session now."""
        self.live: set[str] = set()
        self.made = 0

    def run(self) -> None:
        """Play it to its end, when all clients have gone."""
        acts: list[Callable[[Client], None]] = [
            self.create,
            self.come_back,
            self.come_back,
            self.come_back_talking,
            self.lie,
            self.name_anothers,
            self.talk,
            self.talk,
            self.talk,
            self.leave,
        ]
        for _ in range(STEPS):
            self.stage.clock.t += self.dice.random()
            present = [client for client in self.clients if client.is_open and not client.is_lost]
            if len(present) < 2 or self.dice.random() < 0.25:
                key, address = self.dice.choice(KEYS), self.dice.choice(ADDRESSES)
                self.clients.append(Client(self.stage, key, address))
            else:
                act = self.dice.choice(acts)
                self.counts[act.__name__.replace("_", " ")] += 1
                act(self.dice.choice(present))
            self.look()
        for client in self.clients:
            if client.is_open:
                self.leave(client)
        assert not self.live, "streams left behind"
        ids = [*self.keys, *(token for client in self.clients for token in client.ids)]
        assert not any(map(self.stage.context.reports.find, ids)), "ids of reports left behind"

    def create(self, client: Client) -> None:
        """The server begins a session, by a connection that may carry another one."""
        self.made += 1
        session = f"duplex-{self.made:016}"
        self.keys[session] = client.key
        self.carry(client, session)
        self.judge(client, client.begins(session))

    def come_back(self, client: Client, talking: bool = False) -> None:
        """The client asks for a session of its own key, or for any by its name: the server takes its own up."""
        own = [session for session, key in self.keys.items() if key == client.key]
        if not own or client.session:
            return
        session = self.dice.choice(own)
        known, before = self.stage.find(session), self.carriers.get(session)
        stream = known.stream_events.name if known else ""
        said = client.goes(
            resume(0, session=self.dice.choice([session, *self.keys])),
            *([answers(0, type="rate_limits.updated")] if talking else []),
        )
        is_asked = client.is_asking
        said += client.goes(answers(0, **hit(session)))
        client.session = session
        self.judge(client, said, replaced=before)
        self.carry(client, session)
        if known and is_asked:
            self.counts["taken up"] += 1
            assert client.stream == stream, f"{session} is not taken up"

    def come_back_talking(self, client: Client) -> None:
        """The server says something before it takes the session up."""
        self.come_back(client, talking=True)

    def lie(self, client: Client) -> None:
        """The client asks for another's session, and does not get it."""
        answer = self.dice.choice(
            [
                {"type": "error", "error": {"code": "session_resume_expired"}},
                {"type": "error", "error": {"code": "invalid_resume_token"}},
                {"type": "session.resync_required"},
                {"type": "rate_limits.updated"},
            ]
        )
        session = self.dice.choice([*self.keys, "unheard-of-12345678"])
        self.judge(client, client.goes(resume(0, session=session), answers(0, **answer)))

    def name_anothers(self, client: Client) -> None:
        """The server names a session that began with another key, as where a key was changed."""
        others = [one for one, key in self.keys.items() if key != client.key and self.stage.find(one)]
        if others and not client.session:
            session = self.dice.choice(others)
            steps = [resume(0, session=session)] * self.dice.randrange(2)
            self.judge(client, client.goes(*steps, answers(0, **hit(session))))

    def talk(self, client: Client) -> None:
        """A turn, or part of one."""
        response = f"r{self.dice.randrange(4)}"
        steps = [
            says(0, type="response.create"),
            duplex(0, 80, 80, response),
            *done(0, response),
            says(0, type="playback.ack", played_ms=40),
        ]
        self.judge(client, client.goes(*steps[: self.dice.randrange(1, 6)]))

    def leave(self, client: Client) -> None:
        if self.carriers.get(client.session) is client:
            del self.carriers[client.session]
        self.judge(client, client.leaves())

    def carry(self, client: Client, session: str) -> None:
        for other, carrier in list(self.carriers.items()):
            if carrier is client:
                del self.carriers[other]
        former = self.carriers.get(session)
        if former and former is not client:
            former.session, former.is_lost = "", True
        self.carriers[session] = client

    def judge(self, client: Client, events: list[ev.Event], replaced: Client | None = None) -> None:
        """What a client does is told of its own key's streams alone, and ends no other connection's but the one it replaces."""
        for event in events:
            stream = event.stream  # type: ignore[attr-defined]
            self.counts["events"] += 1
            owner = self.owners.setdefault(stream, client.key)
            assert owner == client.key, f"{event} by a client of key {client.key}, not {owner}"
            if isinstance(event, ev.StreamStart):
                assert stream not in self.live, f"{event}: begun twice"
                self.live.add(stream)
                continue
            assert stream in self.live, f"{event}: not begun"
            if isinstance(event, ev.StreamEnd):
                self.live.remove(stream)
                if event.reason == "replaced":
                    assert replaced is not None, f"{event} by a session that no other connection carried"
                    assert replaced is not client

    def look(self) -> None:
        """Every session that a connection carries is known; of the others there are only so many."""
        for session, client in self.carriers.items():
            known = self.stage.find(session)
            assert known, f"{session} is forgotten while a connection carries it"
            assert known.holder is client.observer, f"{session} is carried by another connection"
            assert known.stream_events.name == client.stream
        assert len(self.stage.context.sessions) <= MAX_LEFT + len(self.clients)
        for client in self.clients:
            if client.is_open and not client.is_lost and client.has_begun:
                assert client.stream in self.live, "a live connection's stream was ended"


def play(seed: int, counts: Counter[str]) -> str:
    """Play once. Returns what is wrong, "" for nothing."""
    counts["plays"] += 1
    try:
        Play(seed, counts).run()
    except AssertionError as error:
        return f"seed {seed}: {error}"
    return ""
