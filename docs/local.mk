# docs: shipped with the sources.
EXTRA_DIST += \
  NEWS \
  docs/complaints.md \
  docs/contracts.md \
  docs/design.md \
  docs/examples/penstock.sbatch \
  docs/examples/penstock.service \
  docs/examples/llama3_70b.cfg \
  docs/examples/llama3_70b_plan.cfg \
  docs/glossary.md \
  docs/guide.md \
  docs/llama3_70b.md \
  docs/llama3_70b.png \
  docs/llama3_70b_plan.svg \
  docs/report.png \
  docs/zero_bubble_v.svg
