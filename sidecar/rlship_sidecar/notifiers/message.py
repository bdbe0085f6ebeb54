"""An episode as a message: every text bounded and without control characters. Pure."""

from __future__ import annotations

from rlship_sidecar.alerts.episodes import Episode
from rlship_sidecar.alerts.rules import Rule
from rlship_sidecar.notifiers.contract import FIRING, OVER, SUMMARY, Message
from rlship_sidecar.report.terminal import clean

MAX_NAME, MAX_PLACE, MAX_TEXT, MAX_EVIDENCE = 100, 200, 500, 20


def message_of(experiment: str, episode: Episode, rule: Rule) -> Message:
    """What is said of an episode, as it is now."""
    over = episode.ended is not None
    name, place = clean(experiment, MAX_NAME), clean(episode.place, MAX_PLACE)
    at = f" at {place}" if place else ""
    steps = f"steps {episode.first.step}..{episode.last.step}" if over else f"from step {episode.first.step}"
    evidence = {clean(one, MAX_NAME): value for one, value in episode.evidence[:MAX_EVIDENCE]}
    values = ", ".join(f"{one} {value:.4g}" for one, value in evidence.items())
    about, look = clean(rule.about, MAX_TEXT), clean(rule.look, MAX_TEXT)
    parts = [about, f"Step {episode.fired.step}: {values}" if values else "", f"Look at: {look}" if look else ""]
    return Message(
        what=OVER if over else FIRING,
        id=episode.id,
        experiment=name,
        rule=episode.rule,
        severity=episode.severity,
        state=episode.state if over else FIRING,
        title=f"{name}: {episode.rule}{at} {episode.state if over else episode.severity}, {steps}",
        text="\n".join(part for part in parts if part),
        place=place,
        about=about,
        look=look,
        evidence=evidence,
        first_step=episode.first.step,
        fired_step=episode.fired.step,
        fired_t=episode.fired.t,
        ended_step=None if episode.ended is None else episode.ended.step,
        ended_t=None if episode.ended is None else episode.ended.t,
    )


def summary_of(message: Message, most: int) -> Message:
    """That a rule fires too often."""
    return Message(
        what=SUMMARY,
        id=f"{message.id}-more",
        experiment=message.experiment,
        rule=message.rule,
        severity=message.severity,
        state=FIRING,
        title=f"{message.experiment}: {message.rule} fired more than {most} times in an hour",
        text="Further messages about it are left out for an hour. All episodes: rlship alerts",
        fired_step=message.fired_step,
        fired_t=message.fired_t,
    )
