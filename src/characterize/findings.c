/* Findings of a published study, checked on the points of a study of ours. */
#include "characterize/findings_internal.h"

#include "io/json.h"

#include <stdlib.h>

const char *const erg_finding_kind_names[] = {"magnitude", "sign", "reported", "not modelled",
                                              NULL};
const char *const erg_finding_verdict_names[] = {
    "holds", "fails", "reported", "no points for it", "not modelled", NULL};

/* ---- the table ---- */

static const struct finding_row {
    const char *id;
    enum erg_finding_kind kind;
    const char *claim, *expected;
    void (*check)(struct erg_finding_check *at); /* NULL: nothing to check */
} rows[] = {
    {"1", ERG_FINDING_MAGNITUDE,
     "GPUs behind others are up to 27 % hotter: largest ratio of mean rear to mean front "
     "temperature, in °C",
     "1.20 to 1.30", erg_finding_check_rear_ratio},
    {"2", ERG_FINDING_MAGNITUDE, "the same as a difference under load", "12 to 20 K",
     erg_finding_check_rear_gap},
    {"3", ERG_FINDING_MAGNITUDE, "the two dies of an MI250 differ", "5 to 10 K",
     erg_finding_check_twins},
    {"4", ERG_FINDING_SIGN,
     "hot GPUs clock at 1.7 GHz or lower under load: the lowest mean busy clock",
     "at most 1.75 GHz; by the cap at 29 °C of air, by heat at 42 °C",
     erg_finding_check_lowest_clock},
    {"5", ERG_FINDING_SIGN,
     "rear GPUs do not cool down: their lowest temperature is above the highest of the front GPUs "
     "of their node, in pipelines with microbatches of 1",
     "in all", erg_finding_check_cool_down},
    {"6", ERG_FINDING_REPORTED, "throttling grows with the depth of the pipeline", "either sign",
     erg_finding_report_clocks},
    {"7", ERG_FINDING_OUT, "resident blocks as its cause", "not modelled", NULL},
    {"8", ERG_FINDING_MAGNITUDE,
     "GPT3-175B TP8 FSDP4 is more than 3 times as fast with microbatches of 4: time at 1 over time "
     "at 4",
     "3.2 to 4.0", erg_finding_check_sharded_speedup},
    {"9", ERG_FINDING_SIGN, "GPT3-175B TP2 PP16 gains nothing from larger microbatches",
     "time rises, eff_edp falls", erg_finding_check_pipeline_microbatches},
    {"10", ERG_FINDING_SIGN,
     "peak power and temperature rise with the microbatch in fully sharded layouts",
     "mean power, sensor peak and highest temperature rise",
     erg_finding_check_sharded_microbatches},
    {"11", ERG_FINDING_SIGN, "overlap increases heat: cc compared with base, where they differ",
     "exposed communication and time fall, mean power and highest temperature do not",
     erg_finding_check_overlap},
    {"12", ERG_FINDING_REPORTED,
     "recomputation throttles deep pipelines less and data parallel layouts more", "either sign",
     erg_finding_report_throttling},
    {"13", ERG_FINDING_SIGN, "Llama3-70B is faster on 64 H100 than on 32 H200", "0.5 to 0.65",
     erg_finding_check_llama_clusters},
    {"13b", ERG_FINDING_SIGN,
     "GPT3-175B: TP2 PP16 on H200 needs less energy per token than TP2 PP32 on H100", "less",
     erg_finding_check_gpt3_energy},
    {"13c", ERG_FINDING_REPORTED, "the same for throughput", "not reproduced",
     erg_finding_report_gpt3_speed},
    {"13d", ERG_FINDING_SIGN,
     "Mixtral 8x22B: EP8 TP1 PP4 on H200 has more tokens per joule than EP8 TP1 PP8 on H100",
     "more", erg_finding_check_mixtral_energy},
    {"14", ERG_FINDING_SIGN,
     "kernel time: mostly communication in 8x22B EP8 TP4, mostly not in Llama3-70B",
     "above 50 %, below 50 %", erg_finding_check_kernel_shares},
    {"15", ERG_FINDING_SIGN, "pipelines use little of a node's network (dense models)", "below 0.3",
     erg_finding_check_network},
    {"16", ERG_FINDING_MAGNITUDE, "early stages on cold GPUs, equal layers",
     "within 2 % of eff_edp", erg_finding_check_cold_first},
    {"17, 18", ERG_FINDING_SIGN,
     "one more layer on cold GPUs: Llama3-70B gains, GPT3-175B loses, gaps shrink",
     "at 41 and 42 °C of air; both lose at 29 °C; gaps shrink by 7 to 25 %",
     erg_finding_check_uneven},
    {"19", ERG_FINDING_MAGNITUDE,
     "LoRA is more efficient: tokens per joule compared with full training",
     "1.2 to 1.7, at equal tokens and recomputation", erg_finding_check_lora},
    {"20", ERG_FINDING_MAGNITUDE, "a node at a quarter of its clock slows all others",
     "at least 3.5 times", erg_finding_check_fault},
    {"21", ERG_FINDING_OUT, "projection to 8,000 GPUs", "see ergon layout", NULL},
};

static enum erg_finding_verdict verdict_of(const struct erg_finding_check *at,
                                           const struct finding_row *row)
{
    if (row->kind == ERG_FINDING_OUT)
        return ERG_VERDICT_OUT;
    if (at->ours.count == 0)
        return ERG_VERDICT_NO_POINTS;
    if (row->kind == ERG_FINDING_REPORTED)
        return ERG_VERDICT_REPORTED;
    return at->judged == 0  ? ERG_VERDICT_REPORTED
           : at->failed > 0 ? ERG_VERDICT_FAILS
                            : ERG_VERDICT_HOLDS;
}

void erg_findings_check(struct erg_findings *findings,
                        const struct erg_collection *const *collections, size_t count)
{
    *findings = (struct erg_findings){0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct erg_finding_check at = {.collections = collections, .count = count};
        if (rows[i].check)
            rows[i].check(&at);
        const struct erg_study_finding finding = {
            .id = rows[i].id,
            .kind = rows[i].kind,
            .claim = rows[i].claim,
            .expected = rows[i].expected,
            .ours = erg_arena_strdup(&findings->arena, at.ours.count ? at.ours.data : "–"),
            .verdict = verdict_of(&at, &rows[i]),
        };
        ERG_PUSH(findings, items, finding);
        erg_text_release(&at.ours);
    }
}

void erg_findings_release(struct erg_findings *findings)
{
    free(findings->items);
    erg_arena_release(&findings->arena);
}

size_t erg_findings_failed(const struct erg_findings *findings)
{
    size_t failed = 0;
    for (size_t i = 0; i < findings->count; i++)
        failed += findings->items[i].verdict == ERG_VERDICT_FAILS;
    return failed;
}

json_t *erg_findings_json(const struct erg_findings *findings)
{
    json_t *list = json_array();
    for (size_t i = 0; i < findings->count; i++) {
        const struct erg_study_finding *finding = &findings->items[i];
        json_array_append_new(
            list, erg_json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "id", finding->id, "kind",
                                erg_finding_kind_names[finding->kind], "claim", finding->claim,
                                "expected", finding->expected, "ours", finding->ours, "verdict",
                                erg_finding_verdict_names[finding->verdict]));
    }
    return erg_json_pack("{s:s, s:i, s:I, s:o}", "schema", "ergon.findings", "schema_version", 1,
                         "failed", (json_int_t)erg_findings_failed(findings), "findings", list);
}
