/* Device visibility. A MIG-enabled card has no device of its own; CUDA offers at most one of its instances unless it is named. */
#include "visible.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool node_exists(const char *format, int minor)
{
    const char *directory = getenv("SIMGPU_DEV");
    if (directory == NULL)
        return true;
    char path[4096], name[64];
    snprintf(name, sizeof name, format, minor);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

bool sim_card_present(const struct sim_card *card)
{
    return node_exists("nvidia%d", card->minor);
}

bool sim_mig_present(const struct sim_card *card, const struct sim_mig *mig)
{
    return sim_card_present(card) && node_exists("nvidia-caps/nvidia-cap%d", mig->gi_minor) &&
           node_exists("nvidia-caps/nvidia-cap%d", mig->ci_minor);
}

static int first_mig(const struct sim_card *card)
{
    for (int i = 0; i < card->mig_count; i++)
        if (sim_mig_present(card, &card->mig[i]))
            return i;
    return -1;
}

/* What an ordinary process enumerates: the whole cards; where there is none, one MIG instance. */
static int enumerate(const struct sim_scenario *scenario, struct sim_choice *choices)
{
    int count = 0;
    for (int i = 0; i < scenario->card_count; i++) {
        const struct sim_card *card = &scenario->cards[i];
        if (!card->lost && !card->mig_enabled && sim_card_present(card))
            choices[count++] = (struct sim_choice){i, -1};
    }
    for (int i = 0; i < scenario->card_count && count == 0; i++) {
        const struct sim_card *card = &scenario->cards[i];
        int mig = card->lost || !card->mig_enabled || !sim_card_present(card) ? -1 : first_mig(card);
        if (mig >= 0)
            choices[count++] = (struct sim_choice){i, mig};
    }
    return count;
}

static bool find_mig(const struct sim_scenario *scenario, const char *name, size_t length, struct sim_choice *choice)
{
    for (int i = 0; i < scenario->card_count; i++) {
        const struct sim_card *card = &scenario->cards[i];
        for (int m = 0; !card->lost && m < card->mig_count; m++) {
            if (strncmp(card->mig[m].uuid, name, length) != 0 || !sim_mig_present(card, &card->mig[m]))
                continue;
            *choice = (struct sim_choice){i, m};
            return true;
        }
    }
    return false;
}

/* A UUID may be shortened as long as it names one card. */
static bool find_card(const struct sim_scenario *scenario, const struct sim_choice *base, int count, const char *name,
                      size_t length, struct sim_choice *choice)
{
    int matches = 0;
    for (int i = 0; i < count; i++) {
        if (strncmp(scenario->cards[base[i].card].uuid, name, length) != 0)
            continue;
        *choice = base[i];
        matches++;
    }
    return matches == 1;
}

static bool find_choice(const struct sim_scenario *scenario, const struct sim_choice *base, int count, const char *name,
                        size_t length, struct sim_choice *choice)
{
    if (length > 4 && strncmp(name, "MIG-", 4) == 0)
        return find_mig(scenario, name, length, choice);
    if (length > 4 && strncmp(name, "GPU-", 4) == 0)
        return find_card(scenario, base, count, name, length, choice);
    char *end;
    long index = strtol(name, &end, 10);
    if (end != name + length || length == 0 || index < 0 || index >= count)
        return false;
    *choice = base[index];
    return true;
}

static bool listed(const struct sim_choice *choices, int count, struct sim_choice choice)
{
    for (int i = 0; i < count; i++)
        if (choices[i].card == choice.card && choices[i].mig == choice.mig)
            return true;
    return false;
}

int sim_visible(const struct sim_scenario *scenario, struct sim_choice choices[SIM_MAX_DEVICES])
{
    struct sim_choice base[SIM_MAX_DEVICES], choice;
    int base_count = enumerate(scenario, base);
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    if (text == NULL) {
        memcpy(choices, base, sizeof base);
        return base_count;
    }
    int count = 0;
    while (count < SIM_MAX_DEVICES) {
        text += strspn(text, " ");
        size_t length = strcspn(text, ", ");
        if (!find_choice(scenario, base, base_count, text, length, &choice))
            break; /* the first entry that names nothing ends the list */
        if (listed(choices, count, choice))
            return 0; /* a device named twice hides them all */
        choices[count++] = choice;
        text += length + strspn(text + length, " ");
        if (*text != ',')
            break;
        text++;
    }
    return count;
}
