"""How the page of a report looks, and the few lines that show a tooltip. Nothing is loaded from anywhere."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--page:#f4f5f7;--card:#fff;--ink:#1b2230;--soft:#5a6475;--faint:#8a93a3;--edge:#e1e4ea;
--grid:#eceef2;--chip:#eef0f4;--good:#2b8a5f;--bad:#c8373d;--warn:#b7791f;--bad-soft:#fdf0f0;--good-soft:#eef8f3;
--s1:#3f6fd1;--s2:#e0912f;--s3:#2f9d8a;--s4:#b85aa0;--s5:#7d64cf;--s6:#c2a81f;--s7:#58a8dd;--s8:#a7aebb;
--p50:#3f6fd1;--p90:#7d64cf;--p99:#d9822b;--p999:#c8373d;
--shadow:0 1px 2px rgba(20,28,45,.06),0 1px 8px rgba(20,28,45,.04)}
@media(prefers-color-scheme:dark){:root{--page:#12151b;--card:#1a1f28;--ink:#e6e9ef;--soft:#a3acbb;--faint:#7c8696;
--edge:#2a313d;--grid:#262d38;--chip:#252c37;--good:#56c08f;--bad:#f2777a;--warn:#e3b04b;--bad-soft:#2b1d21;
--good-soft:#18271f;--s1:#6f9bf0;--s2:#f0ad5c;--s3:#55c2af;--s4:#db87c5;--s5:#a791f0;--s6:#d9c454;--s7:#86c5ee;
--s8:#697384;--p50:#6f9bf0;--p90:#a791f0;--p99:#f0a255;--p999:#f2777a;--shadow:none}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;-webkit-text-size-adjust:100%}
main{max-width:1180px;margin:0 auto;padding:28px 24px 56px}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 14px;margin-bottom:18px}
h1{font-size:26px;line-height:1.2;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
h1 small{font-size:13px;font-weight:600;letter-spacing:.08em;text-transform:uppercase;color:var(--faint);display:block}
header p{margin:0;color:var(--soft);flex-basis:100%}
h2{font-size:17px;margin:0 0 2px;letter-spacing:-.005em}
h2+p,.said{margin:0 0 12px;color:var(--soft);font-size:14px}
section{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:18px 20px;margin-top:16px;
box-shadow:var(--shadow);min-width:0}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:0 16px}
.cards{display:grid;grid-template-columns:repeat(6,1fr);gap:12px}
.card{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:12px 14px;box-shadow:var(--shadow);
min-width:0}
.card b{display:block;font-size:25px;line-height:1.25;font-weight:650;letter-spacing:-.02em;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.card span{font-size:13px;color:var(--soft);font-weight:600}.card i{font-style:normal;font-size:12.5px;
color:var(--faint);display:block;line-height:1.35}
.card em{font-style:normal;font-weight:650;font-size:16px;color:var(--ink);white-space:nowrap}
.bad b,.bad strong,b.bad{color:var(--bad)}.good b{color:var(--good)}
.strip{margin-top:12px}.strip svg.bar{height:10px;border-radius:5px}
.alert{border-left:4px solid var(--bad)}.alert.ok{border-left-color:var(--good)}
.alert ul{margin:8px 0 0;padding:0;list-style:none}.alert li{padding:10px 0;border-top:1px solid var(--grid)}
.alert li:first-child{border-top:0;padding-top:2px}.alert li:last-child{padding-bottom:0}
.alert p{margin:2px 0 0;color:var(--soft);font-size:14px}
code,pre{font:12.5px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
overflow-wrap:anywhere}
code{background:var(--chip);border-radius:4px;padding:1px 5px}
pre{background:var(--chip);border-radius:6px;padding:8px 10px;margin:6px 0 0;white-space:pre-wrap}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;color:var(--soft);margin:6px 0 4px}
.legend span{display:inline-flex;align-items:center;gap:6px;min-width:0;overflow-wrap:anywhere}
.legend i{width:10px;height:10px;border-radius:3px;flex:none}
svg.plot{display:block;max-width:100%;height:auto}svg.plot text{font-size:12px;fill:var(--soft);
font-variant-numeric:tabular-nums}svg.plot text.name{fill:var(--ink);font-size:13px}
svg.bar{display:block;border-radius:3px;background:var(--grid)}
.grid,.tick{stroke:var(--grid);fill:none;shape-rendering:crispEdges}.tick{stroke:var(--faint)}
.hover{fill:transparent}.hover:hover,g:hover>.hover{fill:var(--ink);fill-opacity:.06}
.range{stroke:var(--faint);stroke-width:2.5;opacity:.55}
path.line{fill:none!important;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.narrow{display:none}
.scroll{overflow-x:auto;margin:0 -4px;padding:0 4px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th{font-size:12.5px;color:var(--faint);font-weight:600;text-align:left;white-space:nowrap}
th,td{padding:6px 10px 6px 0;border-bottom:1px solid var(--grid);vertical-align:top}
td:first-child{overflow-wrap:anywhere;min-width:120px}tr:last-child td{border-bottom:0}
.n{text-align:right;white-space:nowrap}th.n,td.n{padding-left:12px;padding-right:0}
tr.all td{font-weight:600}
details{margin-top:8px}summary{cursor:pointer;color:var(--soft);font-size:13.5px}summary:hover{color:var(--ink)}
.bars{display:grid;grid-template-columns:fit-content(40%) 1fr max-content;gap:10px 14px;align-items:center;
font-size:14px;font-variant-numeric:tabular-nums}.row{display:contents}.row>div{min-width:0;overflow-wrap:anywhere}
.bars .n{color:var(--soft)}.bars strong{color:var(--ink);font-weight:600}
.causes{list-style:none;margin:4px 0 0;padding:0}.causes>li{padding:12px 0;border-top:1px solid var(--grid)}
.causes>li:first-child{border-top:0;padding-top:4px}
.cause{display:flex;justify-content:space-between;gap:16px;align-items:baseline}.cause>code{background:none;padding:0;
font-size:13.5px}.cause b{white-space:nowrap;font-variant-numeric:tabular-nums}.causes .bar{margin:6px 0}
.meta{font-size:13px;color:var(--soft)}.meta span+span:before{content:" · ";color:var(--faint)}
.reason{display:block;margin-top:3px;line-height:1.35;color:var(--soft);font-size:13px;overflow-wrap:anywhere}
footer{margin-top:22px;color:var(--soft);font-size:13.5px}footer h2{font-size:15px;color:var(--ink);margin-bottom:6px}
footer ul{margin:0;padding-left:18px}footer li{margin:3px 0}
#tip{position:fixed;z-index:9;pointer-events:none;background:var(--ink);color:var(--card);border-radius:6px;
padding:6px 9px;font-size:12.5px;line-height:1.45;white-space:pre-line;max-width:320px;overflow-wrap:anywhere;
display:none;font-variant-numeric:tabular-nums}
@media(max-width:980px){.cards{grid-template-columns:repeat(3,1fr)}.pair{grid-template-columns:1fr}}
@media(max-width:640px){main{padding:18px 12px 40px}section{padding:14px}.cards{grid-template-columns:1fr 1fr;gap:8px}
.card b{font-size:21px}.wide{display:none}.narrow{display:block}h1{font-size:22px}.bars{display:block}
.row{display:grid;grid-template-columns:1fr max-content;gap:2px 12px;margin-bottom:10px}
.row>.b{order:3;grid-column:1/-1}
td:first-child{min-width:150px}}
@media print{body{background:#fff}section,.card{box-shadow:none;break-inside:avoid}}
""" + "".join(
    f".{name}{{fill:var(--{name})}}path.line.{name}{{stroke:var(--{name})}}i.{name}{{background:var(--{name})}}"
    for name in (*[f"s{number}" for number in range(1, 9)], "p50", "p90", "p99", "p999", "good", "bad", "warn")
)

#: Tooltips at once, and by touch too; without it the browser's own appear.
SCRIPT: Final = """
const tip=document.createElement("div");tip.id="tip";document.body.append(tip);const told=new WeakMap();
for(const title of document.querySelectorAll("svg title")){told.set(title.parentNode,title.textContent);title.remove()}
const show=event=>{let node=event.target;while(node&&!told.has(node))node=node.parentNode;
if(!node){tip.style.display="none";return}
tip.textContent=told.get(node);tip.style.display="block";const box=tip.getBoundingClientRect();
tip.style.left=Math.max(4,Math.min(event.clientX+14,innerWidth-box.width-6))+"px";
tip.style.top=(event.clientY+18+box.height>innerHeight?Math.max(4,event.clientY-box.height-12):event.clientY+18)+"px"};
document.addEventListener("pointermove",show);document.addEventListener("pointerdown",show);
"""

_HASH: Final = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
#: The browser itself loads nothing, sends nothing, and runs nothing but the lines above.
POLICY: Final = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
)
