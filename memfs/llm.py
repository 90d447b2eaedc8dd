"""A language model behind one door: bounded runs with a checked answer, tools, and one meter for tokens and money.

Models go by pydantic-ai's names, `PROVIDER:NAME` (`anthropic:claude-sonnet-4-5`, `openai:gpt-5`), with the keys
that each provider's own variables hold. Any endpoint that speaks the OpenAI protocol is `openai-chat:NAME`
with OPENAI_BASE_URL. The package is the extra `agent-memfs[model]`, loaded when a model is first named.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from memfs.errors import AccessError, ConfigError, InputError, MemfsError, UnreachableError, redact

if TYPE_CHECKING:
    from pydantic_ai import RunUsage, UsageLimits
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

__all__ = ["BudgetError", "LanguageModel", "NonsenseError", "Spent"]

T = TypeVar("T")
REQUESTS_MAX = 16
"""Of one run, tool calls and repairs included."""
REPAIRS_MAX = 2
TIMEOUT_S = 180.0
"""Of one request."""
ANSWER_TOKENS_MAX = 8_000
CHARS_PER_TOKEN = 4
"""To guess what a prompt will take, before the model says it."""


class BudgetError(MemfsError):
    """The run's tokens or money are used up; what was done is kept, and the same command goes on."""

    exit_code = 75


class NonsenseError(InputError):
    """The model's answer could not be used, after it was told why."""


@dataclass(frozen=True)
class Spent:
    """What a run has cost."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """None when the model's price is not known."""

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def __str__(self) -> str:
        price = "" if self.cost_usd is None else f", {self.cost_usd:.4f} USD"
        return f"{self.requests:,} requests, {self.tokens:,} tokens{price}"


@dataclass
class LanguageModel:
    """A model with its budget: every run draws on the same one."""

    name: str
    model: Model
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    _usage: RunUsage | None = field(default=None, repr=False)

    @classmethod
    def open(cls, name: str, *, max_tokens: int | None = None, max_cost_usd: float | None = None) -> LanguageModel:
        """Return the model of that name.

        Raises:
            ConfigError: the extra is not installed, or the name, the key or a budget cannot be used.
        """
        if (max_tokens is not None and max_tokens < 1) or (max_cost_usd is not None and max_cost_usd <= 0):
            raise ConfigError("a budget must be positive", hint="leave --max-tokens and --max-cost out for no limit")
        try:
            from pydantic_ai.exceptions import UserError
            from pydantic_ai.models import infer_model
        except ImportError:
            raise ConfigError("a language model needs pydantic-ai", hint="pip install 'agent-memfs[model]'") from None
        try:
            return cls(name, infer_model(name), max_tokens, max_cost_usd)
        except (UserError, ImportError, ValueError) as error:
            first = redact(str(error)).splitlines()[0]
            raise ConfigError(
                f"the model {name!r}: {first}",
                hint="PROVIDER:NAME, such as anthropic:claude-sonnet-4-5; for an OpenAI-compatible endpoint "
                "openai-chat:NAME with OPENAI_BASE_URL and OPENAI_API_KEY set",
            ) from None

    @property
    def spent(self) -> Spent:
        """So far, over all runs."""
        used = self._usage
        if used is None:
            return Spent()
        cost = None if used.cost is None else float(used.cost)
        return Spent(used.requests, used.input_tokens, used.output_tokens, cost)

    def ask(
        self,
        instructions: str,
        prompt: str,
        answer: type[T],
        *,
        check: Callable[[T], str] = lambda answer: "",
        tools: Sequence[Callable[..., str]] = (),
        repairs: int = REPAIRS_MAX,
        answer_tokens: int = ANSWER_TOKENS_MAX,
    ) -> T:
        """Return the model's answer, of the dataclass `answer`.

        `check` says what is wrong with an answer, "" for nothing; the model is told, and may try `repairs` times
        more. A tool is a function with a docstring; what it returns, the model reads. An answer that is longer than
        `answer_tokens` is cut.

        Raises:
            NonsenseError: no answer that can be used came.
            BudgetError: tokens or money are used up.
            UnreachableError, AccessError, ConfigError: the endpoint.
        """
        from pydantic_ai import Agent, ModelRetry, NativeOutput, RunUsage, ToolOutput

        native = not tools and self.model.profile.get("supports_json_schema_output", False)
        output: Any = NativeOutput(answer) if native else ToolOutput(answer, name="write")
        # An answer is no longer than what is left: a model that rambles is cut, not waited for.
        left = answer_tokens
        if self.max_tokens is not None:
            left = self.max_tokens - self.spent.tokens - (len(instructions) + len(prompt)) // CHARS_PER_TOKEN
            if left < 1:
                raise self._used_up()
        agent: Agent[None, T] = Agent(
            _timed(self.model),
            output_type=output,
            instructions=instructions,
            tools=list(tools),
            deps_type=type(None),
            retries=repairs,
            model_settings={"temperature": 0.0, "timeout": TIMEOUT_S, "max_tokens": min(left, answer_tokens)},
        )

        def checked(found: T) -> T:
            wrong = check(found)
            if wrong:
                raise ModelRetry(wrong)
            return found

        agent.output_validator(checked)
        self._usage = self._usage or RunUsage()

        async def once(limits: UsageLimits) -> T:
            # Entered and left for each run: no connection outlives it, nor the loop that it is bound to.
            async with self.model:
                output: T = (await agent.run(prompt, usage=self._usage, usage_limits=limits)).output
                return output

        return self._run(once)

    def _run(self, run: Callable[[UsageLimits], Awaitable[T]]) -> T:
        from pydantic_ai import UsageLimits, exceptions

        limits = UsageLimits(
            request_limit=self.spent.requests + REQUESTS_MAX,
            total_tokens_limit=self.max_tokens,
            cost_limit=None if self.max_cost_usd is None else Decimal(str(self.max_cost_usd)),
        )
        if self.max_tokens is not None and self.spent.tokens >= self.max_tokens:
            raise self._used_up()
        before = self.spent.requests
        try:
            with warnings.catch_warnings():
                # What a budget cannot be held to stops the run: it does not warn and go on.
                warnings.simplefilter("error", exceptions.CostNotFoundWarning)
                warnings.simplefilter("error", exceptions.UsageLimitUnavailableWarning)
                warnings.simplefilter("ignore", exceptions.UnsupportedSettingWarning)
                return asyncio.run(_awaited(run(limits)))
        except exceptions.UsageLimitExceeded as error:
            if "request_limit" in str(error):
                raise NonsenseError(
                    f"{self.name}: no answer within {REQUESTS_MAX} requests", hint="another model may do better"
                ) from None
            raise self._used_up() from None
        except (exceptions.CostNotFoundWarning, exceptions.UsageLimitUnavailableWarning):
            raise ConfigError(
                f"the budget cannot be held: {self.name} does not say what it used, or its price is not known",
                hint="for a model without a known price give --max-tokens, not --max-cost",
            ) from None
        except (exceptions.ModelAuthenticationError, exceptions.ModelQuotaExceededError) as error:
            raise AccessError(
                f"{self.name}: {_first(error)}", hint="check the provider's key, and its account"
            ) from None
        except exceptions.ModelNotFoundError as error:
            raise ConfigError(f"{self.name}: {_first(error)}", hint="check the model's name") from None
        except exceptions.ModelHTTPError as error:
            kind = AccessError if error.status_code in (401, 403) else UnreachableError
            if 400 <= error.status_code < 500 and error.status_code not in (401, 403, 408, 429):
                raise NonsenseError(f"{self.name} refused the request: {_first(error)}") from None
            raise kind(f"{self.name}: {_first(error)}", hint="try again later") from None
        except (LookupError, TypeError, AttributeError) as error:
            # A completion without choices is a LookupError in there.
            if self.spent.requests > before:
                raise
            raise self._no_model(error) from None
        except exceptions.UnexpectedModelBehavior as error:
            # Before ModelAPIError: since pydantic-ai 2.78 a response that is no completion is both.
            logging.getLogger(__name__).debug("nonsense", exc_info=True)
            if self.spent.requests == before:
                raise self._no_model(error) from None
            raise NonsenseError(
                f"{self.name} gave no answer that can be used: {_reason(error)}", hint="another model may do better"
            ) from None
        except asyncio.TimeoutError:
            raise UnreachableError(
                f"{self.name}: no whole answer within {TIMEOUT_S:.0f} seconds", hint="is the endpoint overloaded?"
            ) from None
        except (exceptions.ModelAPIError, exceptions.RunTimedOut) as error:
            raise UnreachableError(f"{self.name}: {_first(error)}", hint="is the endpoint up?") from None

    def _no_model(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"{self.name}: what answered is no language model: {_first(error)}",
            hint="is OPENAI_BASE_URL the endpoint's, to /v1?",
        )

    def _used_up(self) -> BudgetError:
        if not self.spent.requests and self.max_tokens is not None:
            return BudgetError(
                f"the budget of {self.max_tokens:,} tokens is too small for one request",
                hint="give a larger --max-tokens",
            )
        limit = f"{self.max_tokens:,} tokens" if self.max_cost_usd is None else f"{self.max_cost_usd} USD"
        return BudgetError(
            f"the budget of {limit} is used up ({self.spent})", hint="the same command again goes on from here"
        )


def _timed(model: Model) -> Model:
    """The model, each request ended after TIMEOUT_S: its client's own limit is of each read, and a trickle is many."""
    from pydantic_ai.models.wrapper import WrapperModel

    class Timed(WrapperModel):  # type: ignore[misc]
        async def request(self, *args: Any, **options: Any) -> ModelResponse:
            return await asyncio.wait_for(super().request(*args, **options), TIMEOUT_S)

    return Timed(model)


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def _first(error: Exception) -> str:
    return redact(str(error)).splitlines()[0][:300] if str(error) else type(error).__name__


def _reason(error: BaseException) -> str:
    """The last thing that was said to be wrong with the answer."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(redact(str(error)).split())[:600] or "it was cut short"
