# docs: shipped with the sources.
EXTRA_DIST += \
  NEWS \
  docs/design.md \
  docs/examples/penstock.sbatch \
  docs/examples/penstock.service \
  docs/glossary.md \
  docs/report.png \
  docs/zero_bubble_v.svg
