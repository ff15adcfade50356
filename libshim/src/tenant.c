/* Finds out, at the first call that matters, which slice this process lives in.
 *
 * The fixed mounts of a container come first, because no environment can move them; then the environment, for
 * `aliquot run`; then HAMi-core's. A page that is there but cannot be read means no device memory, never all of it;
 * limits of HAMi-core's environment that cannot be kept end the program.
 * A usage page that the tenant truncates while it runs kills its own processes by SIGBUS at their next allocation:
 * a mapping cannot be guarded against that without a signal handler, which would be the host program's business.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tenant.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aliquot_control.h"
#include "aliquot_usage.h"
#include "ledger.h"
#include "lock.h"
#include "say.h"

#define CONTROL_PATH "/run/aliquot/control"
#define USAGE_PATH "/run/aliquot/usage"
#define CONTROL_ENV "ALIQUOT_CONTROL_PAGE"
#define USAGE_ENV "ALIQUOT_USAGE_PAGE"
#define QUIET_ENV "ALIQUOT_QUIET"
#define RUN_PREFIX "run/"
#define SHIM_VERSION "aliquot 0.1.0"
#define NO_SLICE 125 /* the exit status of `aliquot run` where there is no slice to give */

int aq_tenant_decided = AQ_UNDECIDED;
aq_tenant aq_slice;

static aq_lock deciding;
static aq_control_page from_environment; /* stands for the control page under HAMi-core's environment */

/* Why the pages cannot be used: one sentence. */
typedef struct {
  char text[AQ_NOTE_SIZE];
  bool passing; /* trying again may help */
} refusal;

static const char *refuse(refusal *why, const char *path, const char *reason) {
  snprintf(why->text, sizeof why->text, "%.300s: %s", path, reason);
  return NULL;
}

/* Whether something is there, readable or not. */
static bool is_there(const char *path) {
  struct stat unused;
  return !lstat(path, &unused) || (errno != ENOENT && errno != ENOTDIR);
}

/* The page at the fixed path, else the one the environment names, else NULL. */
static const char *find_page(const char *fixed, const char *variable) {
  if (is_there(fixed)) return fixed;
  const char *path = getenv(variable);
  return path && *path ? path : NULL;
}

/* A part of a page's file, which must have all of it. */
typedef struct {
  const char *path;
  size_t offset, size;
  bool writable;
  void *room; /* to be mapped there, or NULL: anywhere */
} part;

static void *map_part(const part *p, int file, const struct stat *info, refusal *why) {
  if (!S_ISREG(info->st_mode)) return (void *)refuse(why, p->path, "not a regular file");
  if (info->st_size < (off_t)(p->offset + p->size)) return (void *)refuse(why, p->path, "cut short");
  if (p->writable && fallocate(file, 0, (off_t)p->offset, (off_t)p->size) && errno == ENOSPC)
    return (void *)refuse(why, p->path, "its file system is full"); /* a hole that cannot be filled would be SIGBUS later */
  int protection = p->writable ? PROT_READ | PROT_WRITE : PROT_READ, place = p->room ? MAP_FIXED : 0;
  void *page = mmap(p->room, p->size, protection, MAP_SHARED | place, file, (off_t)p->offset);
  return page == MAP_FAILED ? (void *)refuse(why, p->path, strerror(errno)) : page;
}

static void *map_file(const part *p, refusal *why, struct stat *info) {
  void *page = NULL;
  int file = open(p->path, (p->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
  if (file < 0 || fstat(file, info)) refuse(why, p->path, strerror(errno));
  else page = map_part(p, file, info, why);
  if (file >= 0) close(file);
  return page;
}

static const char *control_problem(const aq_control_page *page) {
  if (page->magic != AQ_CONTROL_MAGIC) return "not a control page";
  if (page->version != AQ_PAGE_VERSION) return "a control page of another version";
  if (page->size < AQ_CONTROL_SIZE || page->card_count > AQ_MAX_CARDS) return "a damaged control page";
  if (page->enforcement > AQ_ENFORCE_ENFORCE) return "an unknown level of enforcement";
  return NULL;
}

static const char *usage_problem(const aq_usage_page *page) {
  if (page->magic != AQ_USAGE_MAGIC) return "not a usage page";
  if (page->version != AQ_PAGE_VERSION) return "a usage page of another version";
  if (page->size < AQ_USAGE_SIZE || page->card_count != AQ_MAX_CARDS || page->slot_count != AQ_MAX_SLOTS)
    return "a damaged usage page";
  return NULL;
}

static bool map_control(const char *path, refusal *why) {
  aq_control_page copy;
  struct stat info;
  const aq_control_page *page = map_file(&(part){path, 0, sizeof *page, false, NULL}, why, &info);
  if (!page) return false;
  why->passing = aq_control_snapshot(page, &copy) != 0;
  const char *problem = why->passing ? "its writer left it half-written" : control_problem(&copy);
  if (problem) {
    munmap((void *)page, sizeof *page);
    return refuse(why, path, problem);
  }
  aq_slice.control = page;
  return true;
}

/* The size of a page's file of one of the agents that there were, or of this one. */
static size_t known_size(const aq_usage_page *page) {
  if (aq_usage_has_parts(page)) return AQ_USAGE_FILE_SIZE;
  return aq_usage_has_monitors(page) ? AQ_USAGE_MONITORED_SIZE : AQ_USAGE_ADVANCED_SIZE;
}

/* As much of a usage page's file as the page says that there is. The rest is memory of our own: what the page says may change. */
static aq_usage_page *map_page(const char *path, refusal *why, struct stat *info) {
  void *room = mmap(NULL, sizeof(aq_usage_file), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return (void *)refuse(why, path, strerror(errno));
  aq_usage_page *page = map_file(&(part){path, 0, sizeof *page, true, room}, why, info);
  const char *problem = page ? usage_problem(page) : NULL;
  if (problem) page = (void *)refuse(why, path, problem);
  if (page && aq_usage_has_advances(page)) page = map_file(&(part){path, 0, known_size(page), true, room}, why, info);
  if (!page) munmap(room, sizeof(aq_usage_file));
  return page;
}

static bool map_usage(const char *path, refusal *why) {
  static char kept[PATH_MAX]; /* the environment may change */
  struct stat info;
  refusal unused;
  aq_usage_page *page = map_page(path, why, &info);
  if (!page) return false;
  memcpy(page->shim_version, SHIM_VERSION, sizeof SHIM_VERSION);
  snprintf(kept, sizeof kept, "%s", path);
  aq_slice.usage_file = (aq_page_file){.path = kept, .device = info.st_dev, .inode = info.st_ino};
  aq_slice.usage = page;
  const part annex = {path, AQ_USAGE_SIZE, sizeof(aq_usage_annex), true, NULL};
  if (info.st_size >= AQ_USAGE_SIZE + (off_t)sizeof(aq_usage_annex)) aq_slice.annex = map_file(&annex, &unused, &info);
  return true;
}

static void write_note(aq_usage_page *page, const char *text) {
  size_t length = strnlen(text, AQ_NOTE_SIZE - 1);
  memcpy(page->note, text, length);
  page->note[length] = '\0';
}

/* No memory for this process: says so on stderr, and in the usage page where that can still be written. */
static aq_mode deny(refusal *why, const char *usage_path) {
  refusal unused;
  aq_say("no device memory for this process: %s", why->text);
  if (!aq_slice.usage && usage_path) map_usage(usage_path, &unused);
  if (aq_slice.usage) write_note(aq_slice.usage, why->text);
  return AQ_DENY;
}

static bool is_quiet(void) {
  const char *quiet = getenv(QUIET_ENV);
  return quiet && *quiet && strcmp(quiet, "0");
}

/* The id of a run; a pod's tenant is namespace/pod/container, also in a namespace called run. */
static void find_run(const char *control) {
  aq_control_page page;
  if (!strcmp(control, CONTROL_PATH) || aq_control_snapshot(aq_slice.control, &page)) return;
  page.tenant[sizeof page.tenant - 1] = '\0';
  const char *id = page.tenant + strlen(RUN_PREFIX);
  if (strncmp(page.tenant, RUN_PREFIX, strlen(RUN_PREFIX)) || strchr(id, '/') || strlen(id) >= sizeof aq_slice.run) return;
  memcpy(aq_slice.run, id, strlen(id) + 1);
}

static aq_mode decide_by_pages(const char *control, refusal *why) {
  const char *usage = !strcmp(control, CONTROL_PATH) ? USAGE_PATH : find_page(USAGE_PATH, USAGE_ENV);
  if (!usage) refuse(why, control, "there is no usage page beside it (" USAGE_ENV ")");
  if (!usage || !map_control(control, why) || !map_usage(usage, why)) return deny(why, usage);
  find_run(control);
  return AQ_GUARD;
}

static aq_mode decide_by_hami(refusal *why) {
  static aq_hami_env env;
  extern char **environ;
  aq_hami_read(environ, &env);
  if (!env.present || env.disabled) return AQ_PASS;
  if (env.problem[0]) aq_tenant_end("%s", env.problem);
  aq_hami_step_aside(&env);
  int error = aq_hami_create_usage(env.usage_path);
  if (error) refuse(why, env.usage_path, strerror(error));
  if (error || !map_usage(env.usage_path, why))
    aq_tenant_end("its limits need a page that processes share: %s; CUDA_DEVICE_MEMORY_SHARED_CACHE names another", why->text);
  from_environment.enforcement = AQ_ENFORCE_ENFORCE;
  from_environment.card_count = AQ_MAX_CARDS;
  for (int card = 0; card < AQ_MAX_CARDS; card++) {
    from_environment.cards[card].memory_limit = env.memory_limit[card] ? env.memory_limit[card] : AQ_MEMORY_MAX;
    from_environment.cards[card].core_percent = env.core_percent[card];
  }
  aq_slice.control = &from_environment;
  aq_slice.hami = &env;
  return AQ_GUARD;
}

static aq_mode decide(refusal *why) {
  const char *control = find_page(CONTROL_PATH, CONTROL_ENV);
  aq_slice.self = aq_process_self();
  aq_slice.quiet = is_quiet();
  return control ? decide_by_pages(control, why) : decide_by_hami(why);
}

aq_mode aq_tenant_decide(void) {
  refusal why = {.text = ""};
  aq_lock_acquire(&deciding);
  int mode = __atomic_load_n(&aq_tenant_decided, __ATOMIC_RELAXED);
  if (mode == AQ_UNDECIDED) {
    int saved = errno;
    mode = decide(&why);
    errno = saved;
    if (!why.passing) __atomic_store_n(&aq_tenant_decided, mode, __ATOMIC_RELEASE);
  }
  aq_lock_release(&deciding);
  return (aq_mode)mode;
}

void aq_tenant_end(const char *format, ...) {
  char why[AQ_NOTE_SIZE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, sizeof why, format, arguments);
  va_end(arguments);
  aq_say("this program was ended: %s", why);
  _exit(NO_SLICE);
}

void aq_tenant_note(const char *text) {
  if (aq_slice.usage) write_note(aq_slice.usage, text);
}

void aq_tenant_forget(void) {
  aq_lock_reset(&deciding);
  __atomic_store_n(&aq_tenant_decided, AQ_UNDECIDED, __ATOMIC_RELAXED);
  if (aq_slice.usage) munmap(aq_slice.usage, sizeof(aq_usage_file));
  if (aq_slice.annex) munmap(aq_slice.annex, sizeof *aq_slice.annex);
  if (aq_slice.control && aq_slice.control != &from_environment) munmap((void *)aq_slice.control, AQ_CONTROL_SIZE);
  aq_slice = (aq_tenant){.usage = NULL};
}
