/* HAMi-core's environment, so that the interceptor is usable alone and in its place.
 *
 * CUDA_DEVICE_MEMORY_LIMIT[_<card>]   bytes, or a number with k, m or g (powers of 1024); 0: none
 * CUDA_DEVICE_SM_LIMIT[_<card>]       percent; 100: uncapped; 0: none
 * CUDA_DEVICE_MEMORY_SHARED_CACHE     path of the usage page that the processes of a container share
 * CUDA_DISABLE_CONTROL                true: no limits at all
 * GPU_CORE_UTILIZATION_POLICY         disable: no core limit
 *
 * A variable with a number beats the one without, unless it is 0. Whatever cannot be read is a problem for the whole environment:
 * a limit that was meant and misspelt must not become no limit. Nothing here allocates: it may run before main.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hami_env.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMORY "CUDA_DEVICE_MEMORY_LIMIT"
#define CORE "CUDA_DEVICE_SM_LIMIT"
#define BESIDE ".aliquot"
#define NO_SIZE "is no size; write bytes or a number with k, m or g, such as 2g, or 0 for no limit"
#define NO_CARD(name) "names no card; write " name ", or " name "_0 for card 0, to 15"
#define NO_PERCENTAGE "is no percentage; write 1 to 100, or 0 for no cap"

/* A limit for all cards, and those for one card. */
typedef struct {
  bool set[AQ_MAX_CARDS + 1];
  uint64_t value[AQ_MAX_CARDS + 1]; /* the last entry: for all */
} limits;

static void complain(aq_hami_env *out, const char *name, size_t length, const char *value, const char *remedy) {
  if (out->problem[0]) return;
  snprintf(out->problem, sizeof out->problem, "%.*s=%.64s %s", (int)length, name, value, remedy);
}

/* Digits and nothing else, without overflow; `end` is what follows them. */
static bool read_digits(const char *text, uint64_t *out, const char **end) {
  uint64_t value = 0;
  const char *p = text;
  for (; *p >= '0' && *p <= '9'; p++) {
    uint64_t digit = (uint64_t)(*p - '0');
    if (value > (UINT64_MAX - digit) / 10) return false;
    value = value * 10 + digit;
  }
  *out = value;
  *end = p;
  return p != text;
}

static int suffix_shift(const char *suffix) {
  if (!*suffix) return 0;
  if (suffix[1]) return -1;
  switch (*suffix | 0x20) {
    case 'k': return 10;
    case 'm': return 20;
    case 'g': return 30;
    default: return -1;
  }
}

static bool read_memory(const char *text, uint64_t *out) {
  const char *suffix;
  if (!read_digits(text, out, &suffix)) return false;
  int shift = suffix_shift(suffix);
  if (shift < 0 || *out > (AQ_MEMORY_MAX >> shift)) return false;
  *out <<= shift;
  return true;
}

static bool read_percent(const char *text, uint64_t *out) {
  const char *end;
  return read_digits(text, out, &end) && !*end && *out <= 100;
}

/* The card a variable speaks of: AQ_MAX_CARDS for all of them, -1 when `name` is another variable or no such card. */
static int which_card(const char *name, size_t length, const char *prefix) {
  size_t stem = strlen(prefix);
  if (length < stem || memcmp(name, prefix, stem)) return -1;
  if (length == stem) return AQ_MAX_CARDS;
  uint64_t card;
  const char *end;
  if (name[stem] != '_' || !read_digits(name + stem + 1, &card, &end) || end != name + length) return -1;
  return card < AQ_MAX_CARDS ? (int)card : -1;
}

static bool starts_with(const char *name, size_t length, const char *prefix) {
  return length >= strlen(prefix) && !memcmp(name, prefix, strlen(prefix));
}

static bool is_name(const char *name, size_t length, const char *wanted) {
  return length == strlen(wanted) && !memcmp(name, wanted, length);
}

static void read_limit(aq_hami_env *out, limits *into, const char *name, size_t length, const char *prefix) {
  const char *value = name + length + 1;
  bool memory = !strcmp(prefix, MEMORY);
  int card = which_card(name, length, prefix);
  if (card < 0) {
    complain(out, name, length, value, memory ? NO_CARD(MEMORY) : NO_CARD(CORE));
  } else if (!(memory ? read_memory : read_percent)(value, &into->value[card])) {
    complain(out, name, length, value, memory ? NO_SIZE : NO_PERCENTAGE);
  } else {
    into->set[card] = into->value[card] != 0;
  }
}

static void read_switch(aq_hami_env *out, const char *name, size_t length) {
  const char *value = name + length + 1;
  if (!strcasecmp(value, "true") || !strcmp(value, "1")) {
    out->disabled = true;
  } else if (*value && strcasecmp(value, "false") && strcmp(value, "0")) {
    complain(out, name, length, value, "is neither true nor false; write one of them");
  }
}

static void read_path(aq_hami_env *out, const char *name, size_t length) {
  const char *value = name + length + 1;
  if (value[0] != '/' || strlen(value) >= sizeof out->usage_path) {
    complain(out, name, length, value, "is no absolute path; write one, such as /tmp/slice.usage");
  } else {
    memcpy(out->usage_path, value, strlen(value) + 1);
  }
}

static void settle(aq_hami_env *out, const limits *memory, const limits *core, bool core_off) {
  for (int card = 0; card < AQ_MAX_CARDS; card++) {
    out->memory_of_card[card] = memory->set[card];
    int from = memory->set[card] ? card : AQ_MAX_CARDS;
    out->memory_limit[card] = memory->set[from] ? memory->value[from] : 0;
    from = core->set[card] ? card : AQ_MAX_CARDS;
    out->core_percent[card] = core->set[from] && !core_off ? (uint32_t)core->value[from] % 100 : 0; /* 100: uncapped */
    out->present |= out->memory_limit[card] || out->core_percent[card];
  }
  out->present |= out->problem[0] != 0;
}

void aq_hami_read(char *const *environment, aq_hami_env *out) {
  limits memory = {0}, core = {0};
  bool core_off = false;
  memset(out, 0, sizeof *out);
  snprintf(out->usage_path, sizeof out->usage_path, "/tmp/aliquot-%u.usage", (unsigned)geteuid());
  for (; environment && *environment; environment++) {
    const char *name = *environment;
    const char *equals = strchr(name, '=');
    if (!equals) continue;
    size_t length = (size_t)(equals - name);
    if (starts_with(name, length, MEMORY)) read_limit(out, &memory, name, length, MEMORY);
    else if (starts_with(name, length, CORE)) read_limit(out, &core, name, length, CORE);
    else if (is_name(name, length, "CUDA_DISABLE_CONTROL")) read_switch(out, name, length);
    else if (is_name(name, length, "CUDA_DEVICE_MEMORY_SHARED_CACHE")) read_path(out, name, length);
    else if (is_name(name, length, "GPU_CORE_UTILIZATION_POLICY")) core_off |= !strcasecmp(equals + 1, "disable");
  }
  settle(out, &memory, &core, core_off);
}

/* Whether a file is there that is none of ours, such as the region which HAMi-core has left at its path. */
static bool is_foreign(const char *path) {
  uint64_t magic = 0;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return false;
  bool whole = read(file, &magic, sizeof magic) == sizeof magic;
  close(file);
  return whole && magic != AQ_USAGE_MAGIC;
}

void aq_hami_step_aside(aq_hami_env *env) {
  size_t length = strlen(env->usage_path), room = sizeof env->usage_path - length;
  if (is_foreign(env->usage_path) && room > sizeof BESIDE) memcpy(env->usage_path + length, BESIDE, sizeof BESIDE);
}

/* The head of an empty page; the rest is zeroes. */
typedef struct {
  uint64_t magic;
  uint32_t version, size, card_count, slot_count;
} usage_head;

static_assert(sizeof(usage_head) == offsetof(aq_usage_page, reserved_a), "the head ends where the zeroes start");

static int fill(int file) {
  usage_head head = {AQ_USAGE_MAGIC, AQ_PAGE_VERSION, AQ_USAGE_FILE_SIZE, AQ_MAX_CARDS, AQ_MAX_SLOTS};
  if (write(file, &head, sizeof head) != sizeof head) return EIO;
  if (ftruncate(file, AQ_USAGE_FILE_SIZE)) return errno;
  /* Every user of the container shares the quota; fchmod, because the umask is the host process's own. */
  return fchmod(file, 0666) ? errno : 0;
}

static int write_empty(const char *path) {
  int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return errno;
  int error = fill(file);
  close(file);
  return error;
}

int aq_hami_create_usage(const char *path) {
  char temporary[AQ_HAMI_PATH_SIZE + 32];
  if (!access(path, F_OK)) return 0;
  snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
  unlink(temporary); /* left by a process of this pid that was killed here */
  int error = write_empty(temporary);
  if (!error && link(temporary, path) && errno != EEXIST) error = errno;
  unlink(temporary);
  return error;
}
