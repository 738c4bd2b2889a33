/* The list of policies. */
#include "cluster/policies/policies.h"

#include "base/text.h"

#include <string.h>

const struct erg_policy *const erg_policies[] = {
    &erg_policy_fcfs,          &erg_policy_fcfs_relaxed,
    &erg_policy_elasticflow,   &erg_policy_elasticflow_ls,
    &erg_policy_arena,         &erg_policy_arena_ddl,
    &erg_policy_tiresias,      &erg_policy_gavel,
    &erg_policy_gavel_fair,    &erg_policy_sia,
    &erg_policy_gandiva,       &erg_policy_ergon,
    &erg_policy_ergon_thrifty, NULL,
};

int erg_policy_find(const struct erg_policy **policy, const char *name, struct erg_error *err)
{
    struct erg_text known = {0};
    for (size_t i = 0; erg_policies[i]; i++) {
        if (!strcmp(erg_policies[i]->name, name)) {
            *policy = erg_policies[i];
            erg_text_release(&known);
            return 0;
        }
        erg_text_printf(&known, "%s%s", i ? ", " : "", erg_policies[i]->name);
    }
    erg_fail(err, ERG_USAGE, "unknown policy '%s'; expected one of %s", name, known.data);
    erg_text_release(&known);
    return -1;
}
