# tests/import: modules that penstock-import takes or refuses
EXTRA_DIST += \
  %reldir%/disturbed.py \
  %reldir%/experts.py \
  %reldir%/import.sh \
  %reldir%/models.py \
  %reldir%/named.py \
  %reldir%/refused.py \
  %reldir%/run.py \
  %reldir%/step.py \
  %reldir%/sweep.py
