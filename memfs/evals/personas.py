"""Synthetic accounts, seeded: months of chat whose answers are bound to evidence mechanically.

Each fact is planted in a turn of its own words, and asked about in other words; around it lies small talk, and what
friends of the account like, own and do (which is no answer). Six kinds of questions: preferences, temporal reasoning,
details of past activity, updates of facts, joins over sessions, abstention. Nothing is drawn from a benchmark.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from memfs.corpus.sources.transcript import Session, Turn, render

if TYPE_CHECKING:
    from memfs.evals.data import Dataset, Question

__all__ = ["Shape", "personas"]

ACCOUNTS, QUESTIONS = 44, 640
FIRST = (
    "Ada Bruno Carla Dmitri Elif Farid Greta Hana Ivo Jamila Kofi Lena Mateo Nadia Oskar Priya Quentin Rosa Sven "
    "Tomas Uma Viktor Wanda Xenia Yusuf Zora Anton Bianca Cyrus Delia Emre Fiona Gustav Helga Ines Jonas Katya Luca "
    "Mira Noor Olga Pavel Rania Selim"
).split()
FRIENDS = "Alma Boris Chen Dora Emil Flora Gino Hugo Iris Jorge".split()
CITIES = "Lisbon Graz Tallinn Bergen Porto Krakow Ghent Malaga Turin Leeds Lyon Bremen Sofia Zagreb".split()
PLACES = "Iceland Morocco Vietnam Slovenia Peru Jordan Scotland Georgia Japan Tunisia".split()
JOBS = [
    ("a nurse", "hospital"), ("an accountant", "bank"), ("a welder", "shipyard"), ("a translator", "publisher"),
    ("a botanist", "university"), ("a barista", "roastery"), ("an electrician", "railway"), ("a paralegal", "law firm"),
]  # fmt: skip
PETS = [
    ("cat", "Miso"),
    ("dog", "Biscuit"),
    ("parrot", "Kiwi"),
    ("tortoise", "Otto"),
    ("rabbit", "Pixel"),
    ("gecko", "Neon"),
]
DISHES = "lasagne ramen paella goulash pierogi falafel risotto moussaka".split()
DRINKS = ["oat-milk lattes", "jasmine tea", "black coffee", "ginger lemonade", "matcha", "rooibos"]
SPORTS = ["bouldering", "rowing", "fencing", "trail running", "badminton", "open-water swimming"]
MUSIC = ["cello", "banjo", "trumpet", "accordion", "ukulele", "oboe"]
THINGS = [
    "a second-hand kayak",
    "a cargo bike",
    "a telescope",
    "a sewing machine",
    "an espresso grinder",
    "a film camera",
]
BOOKS = ["Middlemarch", "The Dispossessed", "Stoner", "Pachinko", "Kindred", "The Leopard"]
ALLERGIES = ["peanuts", "shellfish", "kiwis", "sesame", "penicillin", "latex"]
TALK = [
    "Could you help me word an email to my landlord about the heating?",
    "What's a good way to remove a red wine stain?", "Explain the difference between TCP and UDP once more.",
    "Any idea for a rainy Sunday?", "Summarise the plot of a film I can't remember the name of.",
    "My laptop fan is loud again.", "How long does it take to boil an egg at high altitude?",
    "Write a haiku about Mondays.", "What is the capital gains allowance, roughly?", "Suggest a name for a band.",
]  # fmt: skip
REPLIES = [
    "Sure, here is a short version you can adapt.", "Happy to help with that.", "Good question. In short: it depends.",
    "Here are three options.", "That sounds like a full week!", "Noted. Anything else on your mind?",
]  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """How much is said, how often, and how thickly facts are strewn."""

    accounts: int = ACCOUNTS
    questions: int = QUESTIONS
    sessions: int = 16
    """Of an account."""
    turns: int = 14
    """Of a session, both sides."""
    days_between: int = 6
    """At the most, from one session to the next."""
    friends_facts: int = 10
    """Turns of an account that say of a friend what a question asks about the account."""


@dataclass
class _Account:
    name: str
    under: str
    days: list[datetime]
    said: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """By session: (fact, sentence)."""
    asked: list[tuple[str, str, str, tuple[str, ...]]] = field(default_factory=list)
    """(kind, question, answer, facts that answer it); no facts: nothing does."""

    def plant(self, at: int, fact: str, sentence: str) -> None:
        self.said.setdefault(at, []).append((fact, sentence))

    def ask(self, kind: str, question: str, answer: str, *facts: str) -> None:
        self.asked.append((kind, question, answer, facts))


def personas(seed: int = 0, shape: Shape | None = None) -> Dataset:
    """Return the accounts and their questions; the same seed and shape give the same bytes."""
    from memfs.evals.data import Dataset

    chosen = shape or Shape()
    draw = random.Random(f"memfs personas {seed}")
    documents, questions = [], []
    for number in range(chosen.accounts):
        account = _account(draw, number, chosen)
        made, where = _sessions(draw, account, chosen)
        documents += [render(session, account.under) for session in made]
        paths = [document.path for document in documents[-len(made) :]]
        questions += list(_questions(draw, account, number, paths, where))
    return Dataset("personas", documents, _spread(questions, chosen.questions))


def _account(draw: random.Random, number: int, shape: Shape) -> _Account:
    round_, at = divmod(number, len(FIRST))
    name = FIRST[at] + (f" {round_ + 1}" if round_ else "")
    day = datetime(2025, 1, 6, 9, tzinfo=timezone.utc) + timedelta(days=draw.randrange(40))
    days = []
    for _ in range(shape.sessions):
        day += timedelta(days=draw.randint(1, shape.days_between), hours=draw.randint(-3, 3))
        days.append(day)
    account = _Account(name, f"sessions/account-{number:02}/", days)
    for plant in (_likes, _trip, _purchase, _work, _pet, _home, _lesson, _reading, _health, _nothing):
        plant(draw, account)
    friends = [draw.choice(FRIENDS) for _ in range(shape.friends_facts)]
    for friend in friends:
        account.plant(draw.randrange(shape.sessions), "", _of_a_friend(draw, friend))
    return account


def _some(draw: random.Random, account: _Account, count: int) -> list[int]:
    return sorted(draw.sample(range(len(account.days)), count))


def _likes(draw: random.Random, account: _Account) -> None:
    food, drink, sport = draw.choice(DISHES), draw.choice(DRINKS), draw.choice(SPORTS)
    a, b, c = (draw.randrange(len(account.days)) for _ in range(3))
    account.plant(a, "food", f"If I could only eat one thing for the rest of my life, it would be {food}.")
    account.plant(b, "drink", f"I skip everything else in the morning and go straight for {drink}.")
    account.plant(c, "sport", f"Nothing clears my head like {sport}, I try to go twice a week.")
    account.ask("preference", f"Which dish should one cook for {account.name}'s birthday?", food, "food")
    account.ask("preference", f"What does {account.name} like to drink first thing?", drink, "drink")
    account.ask("preference", f"Which sport does {account.name} unwind with?", sport, "sport")


def _trip(draw: random.Random, account: _Account) -> None:
    first, second = _some(draw, account, 2)
    one, two = draw.sample(PLACES, 2)
    left = account.days[first] - timedelta(days=draw.randint(2, 5))
    account.plant(
        first, "trip one", f"Back since {left:%A}, {one} was worth every penny. I stayed {draw.randint(4, 12)} nights."
    )
    account.plant(second, "trip two", f"We flew home from {two} yesterday, I am still jet-lagged.")
    back = account.days[second] - timedelta(days=1)
    account.ask(
        "temporal", f"Which journey came first for {account.name}, {two} or {one}?", one, "trip one", "trip two"
    )
    account.ask("temporal", f"On which day did {account.name} return from {two}?", f"{back:%d %B %Y}", "trip two")


def _purchase(draw: random.Random, account: _Account) -> None:
    at, price = draw.randrange(len(account.days)), draw.randrange(60, 900, 5)
    thing = draw.choice(THINGS)
    account.plant(at, "thing", f"I finally gave in and got myself {thing}, {price} euros all in.")
    account.ask(
        "detail", f"How much did {account.name} pay for the {thing.split(' ', 1)[1]}?", f"{price} euros", "thing"
    )
    account.ask("temporal", f"In which month did {account.name} buy {thing}?", f"{account.days[at]:%B %Y}", "thing")


def _work(draw: random.Random, account: _Account) -> None:
    first, second = _some(draw, account, 2)
    (job, place), (other, elsewhere) = draw.sample(JOBS, 2)
    account.plant(first, "job", f"Work is a lot: I am {job} at a {place}, and we are two people short.")
    account.plant(
        second,
        "new job",
        f"I handed in my notice at the {place}. From now on I earn my living as {other} at a {elsewhere}.",
    )
    account.ask("update", f"What does {account.name} do for a living now?", other, "new job")
    account.ask("update", f"What was {account.name}'s occupation before?", job, "job")


def _pet(draw: random.Random, account: _Account) -> None:
    first, second = _some(draw, account, 2)
    kind, name = draw.choice(PETS)
    years = draw.randint(2, 14)
    account.plant(first, "pet", f"My {kind} {name} has taken over the sofa again.")
    account.plant(second, "pet's age", f"{name} turned {years} this week, there was tuna cake.")
    account.ask("join", f"How old is {account.name}'s {kind}?", str(years), "pet", "pet's age")


def _home(draw: random.Random, account: _Account) -> None:
    first, second = _some(draw, account, 2)
    old, new = draw.sample(CITIES, 2)
    account.plant(first, "old home", f"The flat in {old} has no lift, and I carry everything up four floors.")
    account.plant(second, "new home", f"The boxes are unpacked: {new} is home from this week on.")
    account.ask("update", f"Where does {account.name} live at present?", new, "new home")
    account.ask("join", f"Between which two towns did {account.name} move?", f"{old} and {new}", "old home", "new home")


def _lesson(draw: random.Random, account: _Account) -> None:
    first, second = _some(draw, account, 2)
    what = draw.choice(MUSIC)
    teacher = f"Mr {draw.choice(['Novak', 'Okafor', 'Lindqvist', 'Haddad', 'Moreau'])}"
    account.plant(first, "lessons", f"I signed up for {what} lessons, my neighbours will hate me.")
    account.plant(second, "teacher", f"{teacher} says my {what} posture is improving.")
    account.ask("join", f"Who teaches {account.name} the instrument?", teacher, "lessons", "teacher")
    account.ask("detail", f"Which instrument did {account.name} take up?", what, "lessons")


def _reading(draw: random.Random, account: _Account) -> None:
    at, page = draw.randrange(len(account.days)), draw.randrange(40, 400)
    book = draw.choice(BOOKS)
    account.plant(at, "book", f"I am on page {page} of {book} and can't put it down.")
    account.ask("detail", f"How far had {account.name} got in {book}?", f"page {page}", "book")


def _health(draw: random.Random, account: _Account) -> None:
    at = draw.randrange(len(account.days))
    what = draw.choice(ALLERGIES)
    account.plant(at, "allergy", f"Please keep in mind for any plan: {what} send me to the emergency room.")
    account.ask("preference", f"What must be kept away from {account.name} for medical reasons?", what, "allergy")


def _nothing(draw: random.Random, account: _Account) -> None:
    what = [
        "the name of the sister",
        "the blood type",
        "the car's licence plate",
        "the favourite painter",
        "the wedding venue",
    ]
    for subject in draw.sample(what, 2):
        account.ask("abstention", f"What is {subject} of {account.name}?", "")


def _of_a_friend(draw: random.Random, friend: str) -> str:
    said: list[Callable[[], str]] = [
        lambda: f"{friend} moved to {draw.choice(CITIES)} in the spring.",
        lambda: f"{friend} swears by {draw.choice(DISHES)}, every single week.",
        lambda: f"{friend} plays the {draw.choice(MUSIC)} now.",
        lambda: f"{friend} just came back from {draw.choice(PLACES)}.",
        lambda: f"{friend} works as {draw.choice(JOBS)[0]}.",
        lambda: f"{friend}'s {draw.choice(PETS)[0]} is {draw.randint(2, 14)} years old.",
    ]
    return draw.choice(said)()


def _sessions(draw: random.Random, account: _Account, shape: Shape) -> tuple[list[Session], dict[str, tuple[int, int]]]:
    """Return the sessions, and where each fact stands: (session, turn), both from 0 and 1."""
    made: list[Session] = []
    where: dict[str, tuple[int, int]] = {}
    for at, day in enumerate(account.days):
        facts = account.said.get(at, [])
        pairs = max(shape.turns // 2, len(facts))
        slots = dict(zip(sorted(draw.sample(range(pairs), len(facts))), facts, strict=True))
        turns: list[Turn] = []
        for slot in range(pairs):
            fact, sentence = slots.get(slot, ("", draw.choice(TALK)))
            turns.append(Turn("user", sentence, day))
            if fact:
                where[fact] = (at, len(turns))
            turns.append(Turn("assistant", draw.choice(REPLIES), day))
        made.append(
            Session(
                id=f"{account.under}{at}", title=f"Chat {at + 1} of {account.name}", source="personas", slug="chat",
                turns=tuple(turns), started=day, participants=(account.name, "assistant"),
            )
        )  # fmt: skip
    return made, where


def _questions(
    draw: random.Random, account: _Account, number: int, paths: list[str], where: dict[str, tuple[int, int]]
) -> Iterator[Question]:
    from memfs.evals.data import Question

    # Shuffled: what is left out of the last ones is of every kind.
    for at, (kind, text, answer, facts) in enumerate(draw.sample(account.asked, len(account.asked))):
        places = [where[fact] for fact in facts]
        evidence = frozenset(f"{paths[session]}#t{turn}" for session, turn in places)
        yield Question(
            f"account-{number:02}/{at}", text, kind, account.under, evidence, answer, bool(facts), account.days[-1]
        )


def _spread(questions: list[Question], count: int) -> list[Question]:
    """The first `count`, a question of each account in turn."""
    by_account: dict[str, list[Question]] = {}
    for question in questions:
        by_account.setdefault(question.under, []).append(question)
    deepest = max(map(len, by_account.values()), default=0)
    turns = [some[n] for n in range(deepest) for some in by_account.values() if n < len(some)]
    kept = {question.id for question in turns[:count]}
    return [question for question in questions if question.id in kept]
