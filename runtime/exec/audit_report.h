/* audit_report.h: what an audit found, and the line that names it. */
#ifndef PEN_AUDIT_REPORT_H
#define PEN_AUDIT_REPORT_H

#include "runtime/comm/endpoint.h"
#include "runtime/plan/audit_sum.h"
#include "runtime/plan/plan.h"

/* A tensor of the audited action that has other bits than it must. */
struct pen_audit_finding {
  const struct pen_action *action;
  const struct pen_tensor *tensor;
  uint64_t first_element;        /* of the tensor that `has` begins with, if it is a part of it */
  const unsigned char *has;      /* the tensor */
  const unsigned char *computed; /* what the audit computed; null: the checksums differ: */
  struct pen_audit_sum written;  /* by the tensor's writer */
  uint32_t writer;               /* global rank */
};

/* Ends the run (80) with a line that names rank, action, tensor and the first element that differs.
 * Where checksums differ by more than one word, it names these. */
void pen_audit_report(const struct pen_endpoint *endpoint, const struct pen_audit_finding *finding);

#endif
