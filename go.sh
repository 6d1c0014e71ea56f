. /tmp/env.sh; cd /tmp/right/s
ECRT="$PY -c 'from ecrt.cli import main; main()'"
e() { nice -n 5 $PY -c 'from ecrt.cli import main; main()' "$@"; }
for f in $@; do
 echo "=================== $f"
 t=label; extra=""
 case $f in a21*) t="a --target b";; a17*) t="label";; esac
 e fit $f --target $t -o out_$f --force --seed 0 --budget 3 2>&1 | cut -c1-260 | grep -v '^$'
 if [ -d out_$f/model ]; then
  echo "--- predict"; e predict out_$f $f -o pred_$f.csv 2>&1 | cut -c1-260; head -c 400 pred_$f.csv | head -3
  echo "--- evaluate"; e evaluate out_$f $f 2>&1 | cut -c1-200 | head -30
 fi
done
