/*
 * Categories of kernels by their names.
 *
 * The rule `ergon` has a dictionary, data/kernels/categories.csv: pattern, category and sub; the
 * first pattern that a name contains decides, case-insensitively; "*" in a pattern stands for any
 * text. Names of an exchange library's kernels often do not show the operation, so such a kernel is
 * looked up by the name of its exchange if that is known. The rule `charllm` is that of the
 * published study CharLLM.
 */
#ifndef ERG_TRACE_KERNEL_CATEGORY_H
#define ERG_TRACE_KERNEL_CATEGORY_H

#include "ergon/error.h"
#include "trace/kernel_record.h"

/* "ergon", "charllm"; ends with NULL. */
enum erg_kernel_rule { ERG_KERNEL_RULE_ERGON, ERG_KERNEL_RULE_CHARLLM };
extern const char *const erg_kernel_rule_names[];

struct erg_kernel_names;

/* On failure *names is NULL. */
int erg_kernel_names_load(struct erg_kernel_names **names, enum erg_kernel_rule rule,
                          struct erg_error *err);
/* Loads the caller's dictionary, not the data folder's; the rule is `ergon`. */
int erg_kernel_names_load_file(struct erg_kernel_names **names, const char *path,
                               struct erg_error *err);
void erg_kernel_names_free(struct erg_kernel_names *names); /* NULL is fine */

/*
 * Sets category and sub-category by name, source and exchange, unless the rule is `ergon` and the
 * trace already states them. Caches names. False: the rule excludes this record, as `charllm` does
 * with copies and fills.
 */
bool erg_kernel_names_apply(struct erg_kernel_names *names, struct erg_kernel_record *record);

#endif
