"""The words on the thesis' figures: in English, and in Portuguese as they were printed. Marks keep their own labels."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "pt"]
LANGUAGES: tuple[Language, ...] = ("en", "pt")


@dataclass(frozen=True)
class Phrase:
    """One text in both languages."""

    en: str
    pt: str

    def of(self, language: Language) -> str:
        return self.en if language == "en" else self.pt


X_LABELS = {
    "accesses": Phrase("memory accesses per packet", "Quantidade de acessos à memória"),
    "frame_bytes": Phrase("frame size (with FCS)", "Tamanho do pacote"),
}
HUE_TITLES = {
    "mode": Phrase("mode", "Modo XDP"),
    "queues": Phrase("queues", "Filas"),
    "frame_bytes": Phrase("frame size", "Tamanho do pacote"),
    "cpu": Phrase("CPU", "ID CPU"),
}
PUBLISHED_Y = {
    "throughput": Phrase("throughput (Gbit/s)", "Taxa de transferência (Gbit/s)"),
    "latency": Phrase("latency (nanoseconds)", "Latência (nanosegundos)"),
    "softirq": Phrase("softirq (%)", "Uso de CPU em softirq (%)"),
    "instructions": Phrase("instructions{power}", "Número de instruções{power}"),
    "branches": Phrase("branches{power}", "Número de desvios{power}"),
    "l1_loads": Phrase("L1 data loads{power}", "Acessos à cache L1{power}"),
    "l1_load_misses": Phrase("L1 data load misses{power}", "Erros de acesso à cache L1{power}"),
}
CORRECTED_Y = PUBLISHED_Y | {
    "latency": Phrase("round trip at maximum load (µs)", "Latência em carga máxima (µs)"),
    "softirq": Phrase("softirq, steady mean (%)", "Uso de CPU em softirq, média estável (%)"),
}
_LABELS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(\d+) filas? de processamento"), lambda m: f"{m[1]} queue{'' if m[1] == '1' else 's'}"),
    (re.compile(r"Pacotes de (\d+)B"), lambda m: f"{m[1]}-byte frames"),
    (re.compile(r"XDP (AF_XDP|Generic|Native)"), lambda m: m[1] if m[1] == "AF_XDP" else f"XDP {m[1].lower()}"),
    (re.compile(r"Generic|Native"), lambda m: m[0].lower()),
    (re.compile(r"(\d+)B"), lambda m: f"{m[1]} B"),
)


def shown_label(label: str, language: Language) -> str:
    """Return a mark's label as it is drawn."""
    if language == "pt":
        return label
    return next((shown(match) for pattern, shown in _LABELS if (match := pattern.fullmatch(label))), label)


AS_PUBLISHED = Phrase(
    "As published: the last row or sample of one repetition ({folders}), whatever it says. "
    "See the corrected figure for what the data say.",
    "Como publicado: a última linha ou amostra de uma repetição ({folders}), seja qual for. "
    "A figura corrigida mostra o que os dados dizem.",
)
NO_VALUE = Phrase("No value in the logs at hand: {panels}.", "Nenhum valor nos logs disponíveis: {panels}.")
NO_INTERVAL = Phrase("No interval was printed.", "Nenhum intervalo foi impresso.")
POOLED = Phrase(
    "Error bars: 95 % bootstrap interval of the mean over frame sizes, {resamples} resamples; the printed ones had no "
    "seed, these have ours ({seed}).",
    "Barras de erro: intervalo bootstrap de 95 % da média dos tamanhos de pacote, {resamples} reamostragens; as "
    "impressas não tinham semente, estas têm a nossa ({seed}).",
)
PRINTED_ERRORS = {
    "latency": Phrase(
        "Error of the print: the axis says nanoseconds, the values are seconds.",
        "Erro do impresso: o eixo diz nanosegundos, os valores são segundos.",
    ),
    "softirq": Phrase(
        "Error of the print: two seconds stand for the run.", "Erro do impresso: dois segundos representam a medição."
    ),
    **dict.fromkeys(
        ("instructions", "branches", "l1_loads", "l1_load_misses"),
        Phrase(
            "Error of the print: perf counted the command `sleep 5`, not XDP.",
            "Erro do impresso: o perf contou o comando `sleep 5`, não o XDP.",
        ),
    ),
}
CORRECTED = Phrase(
    "Corrected: {what}; mean over like-for-like repetitions ({repetitions}), error bars: 95 % t interval {scale}.",
    "Corrigido: {what}; média das repetições equivalentes ({repetitions}), barras de erro: intervalo t de 95 % "
    "{scale}.",
)
SCALES = {
    "log": Phrase("on the logarithmic scale", "na escala logarítmica"),
    "logit": Phrase("on the logit scale", "na escala logit"),
}
CLOCK = Phrase(
    ", over the DUT's seconds: the generator's count is {percent:+.2f} % off",
    ", nos segundos do DUT: a contagem do gerador difere em {percent:+.2f} %",
)
RING = Phrase(
    "Trials in which the latency is the fill of a ring (latency × rate is at least half of its entries): {full} of "
    "{all}; in the others the DUT kept up.",
    "Medições em que a latência é o enchimento de um anel (latência × taxa é pelo menos metade das entradas): {full} "
    "de {all}; nas outras o DUT deu conta.",
)
RING_ALWAYS = Phrase(
    "In each of the {all} trials the latency is the fill of a ring (latency × rate is at least half of its entries).",
    "Em cada uma das {all} medições a latência é o enchimento de um anel (latência × taxa é pelo menos metade das "
    "entradas).",
)
WHAT = {
    "throughput": Phrase(
        "forwarding rate from the better of two counters (generator, DUT's interface)",
        "taxa do melhor de dois contadores (gerador, interface do DUT)",
    ),
    "latency": Phrase(
        "running mean undone where its digits allow 5 %",
        "média acumulada desfeita onde as casas decimais permitem 5 %",
    ),
    "softirq": Phrase(
        "mean of the steady samples; `user` is the user and system time of all CPUs, AF_XDP's own core",
        "média das amostras estáveis; `user` é o tempo de usuário e sistema de todas as CPUs, o núcleo do AF_XDP",
    ),
}
BY_DUT = Phrase(
    "By the DUT's count, because the generator counted nothing or too few: {count} of the trials.",
    "Pela contagem do DUT, porque o gerador contou nada ou pouco: {count} das medições.",
)
ABSENT = Phrase("Absent: {parts}.", "Ausentes: {parts}.")
POINTS = Phrase("{count} × {reason}", "{count} × {reason}")
LEFT_OUT = Phrase(
    "Repetitions left out, which ran another program or had another ring: {repetitions}.",
    "Repetições excluídas, com outro programa ou outro anel: {repetitions}.",
)
_REASONS_PT: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            r"perf counted (\w+) (`.*`), not the machine.*",
            r"o perf contou \2, não a máquina: o XDP executa em softirqs que ele não vê",
        ),
        (
            r"frames of others drove the running mean below zero; printed with (\d+) decimals.*",
            r"pacotes de terceiros tornaram a média negativa; impressa com \1 casas decimais, poucas para retirá-los",
        ),
        (r"printed with (\d+) decimals of a second.*", r"impressa com \1 casas decimais de segundo: são poucas"),
        (
            r"the seconds have no latency in common.*",
            "os segundos não têm latência em comum: a maioria difere da mediana em mais de 25 %",
        ),
        (r"(\d+) rows with new frames.*", r"\1 linhas com pacotes novos: poucas para desfazer a média"),
        (r"the TG was deaf, by its signature.*", "o gerador estava surdo, pela assinatura: contou 0 desde o início"),
        (r"the TG was deaf.*", "o gerador estava surdo: contou 0 enquanto o DUT enviava"),
        (r"the TG received nothing.*", "o gerador não recebeu nada, e nenhuma contagem do DUT diz por quê"),
        (r"TG and DUT disagree by ([\d.]+%).*", r"gerador e DUT diferem em \1 nos mesmos pacotes"),
        (r"TG and DUT disagree.*", "gerador e DUT diferem nos mesmos pacotes"),
        (r"received ([\d.n]+%?) of what the physical link.*", r"recebido mais do que o enlace físico comporta"),
        (r"the TG sent no frame.*|no traffic.*", "sem tráfego: ninguém contou um pacote"),
        (r"no frame reached the DUT.*", "nenhum pacote chegou ao DUT"),
        (r"no generator log", "sem log do gerador"),
        (r"no (sar|perf) log", r"sem log do \1"),
        (r"sar saw no traffic", "o sar não viu tráfego"),
        (r"the log has no latency column", "o log não tem coluna de latência"),
        (r"nothing was received: a mean over no frame", "nada foi recebido: média de nenhum pacote"),
        (r"at the generator's ceiling.*", "no limite do gerador: o DUT pode ter encaminhado mais"),
        (r"the (generator|sar|perf) log (cannot be used|does not tell).*", r"o log (\1) não pode ser usado"),
        (r"not recorded", "não registrado"),
    )
)


def reason_in(language: Language, reason: str) -> str:
    """Return why a mark is absent, in ``language``; a reason that has no translation is quoted."""
    if language == "en":
        return reason
    matches = ((pattern.fullmatch(reason), template) for pattern, template in _REASONS_PT)
    return next((match.expand(template) for match, template in matches if match), f"“{reason}”")


OWN = Phrase(
    "Own run {name} ({setting}): mean of up to {repetitions} repetitions, error bars: 95 % t interval.",
    "Medição própria {name} ({setting}): média de até {repetitions} repetições, barras de erro: intervalo t de 95 %.",
)
OWN_BEHIND = Phrase("Grey: as published.", "Cinza: como publicado.")
NOT_MEASURED = Phrase("Nothing of this figure was measured.", "Nada desta figura foi medido.")
OWN_LIMITS = {
    "no NIC": Phrase(
        "No NIC here: nothing is said of line rate, offload or a driver's rings.",
        "Sem placa de rede aqui: nada se diz da taxa de linha, do offload ou dos anéis de um driver.",
    ),
    "shared": Phrase(
        "Sender, DUT and receiver share the CPUs: a rate is the cost of the work, a latency the round of a loop.",
        "Gerador, DUT e receptor dividem as CPUs: a taxa é o custo do trabalho, a latência a volta de um laço.",
    ),
    "few CPUs": Phrase(
        "More queues than CPUs: the mechanism, not the scaling.", "Mais filas que CPUs: o mecanismo, não a escala."
    ),
}
NO_MARK = Phrase("nothing can be said", "nada pode ser dito")
BEHIND = Phrase("thesis", "tese")
LIMITED = {
    "generator": Phrase("TG\nlimits", "gerador\nlimita"),
    "link": Phrase("link\nlimits", "enlace\nlimita"),
}
"""What bounds a mark in place of the DUT, as narrow as the printed legends are."""
CUT = Phrase("interval\ngoes on", "intervalo\ncontinua")
